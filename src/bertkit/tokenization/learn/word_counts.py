"""Count the words of a corpus in bounded memory, as the input of vocabulary learning.

Words are those of :class:`~bertkit.tokenization.BasicTokenizer`, found by the ``tokenizers`` package. Texts are split
at white space and the distinct chunks counted; each is normalized and split into words once. A full table is written to
a temporary file, sorted; the files are merged at the end. The result does not depend on the order of the texts, the
number of workers or the memory limit.
"""

from __future__ import annotations

import heapq
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Self

from tokenizers import normalizers, pre_tokenizers

from bertkit.errors import ConfigError, InputError
from bertkit.system.atomic_files import remove_old_drafts
from bertkit.system.console import amount_of
from bertkit.system.worker_processes import map_in_processes
from bertkit.tokenization.characters import COMMON_SIGNS, SURROGATE, space_out
from bertkit.tokenization.vocabulary import SPECIAL_TOKENS

#: Bytes that counting may use by default.
DEFAULT_MEMORY = 4 << 30
MIN_MEMORY = 16 << 20
#: Bytes per entry of the two tables, generously: a string, its count, its place in the dictionary.
BYTES_PER_WORD = 512
BYTES_PER_CHUNK = 1024
#: Memory per character of text in the table of chunks: text with little white space (Chinese) has long chunks.
BYTES_PER_CHAR = 16
#: Chunks whose words are cached for the next flush.
CACHED_CHUNKS = 1 << 17
#: Characters of text sent to a worker at a time.
BATCH_CHARS = 1 << 21
#: Longer texts are split in parts.
PART_CHARS = 1 << 20

_special = re.compile("|".join(map(re.escape, SPECIAL_TOKENS)))


class _Splitter:
    """Texts to chunks and chunks to words, with or without lower-casing."""

    def __init__(self, do_lower_case: bool) -> None:
        self._lower = do_lower_case
        self._clean = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False
        )
        self._normalize = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=True, strip_accents=do_lower_case, lowercase=do_lower_case
        )
        self._split = pre_tokenizers.BertPreTokenizer()
        self.words = lru_cache(CACHED_CHUNKS)(self._words)

    def chunks(self, text: str) -> Iterator[list[str]]:
        """The text between white space. Special tokens are dropped, because no tokenizer splits them."""
        if not text.isprintable():
            text = self._clean.normalize_str(SURROGATE.sub("", text))
        if "[" in text:
            text = _special.sub(" ", text)
        if self._lower and text.isascii():
            text = text.lower()
        text = space_out(text, COMMON_SIGNS)
        start = 0
        while start < len(text):
            end = text.find(" ", start + PART_CHARS)
            end = len(text) if end < 0 else end
            yield text[start:end].split()
            start = end

    def _words(self, chunk: str) -> tuple[str, ...]:
        return tuple(word for word, _ in self._split.pre_tokenize_str(self._normalize.normalize_str(chunk)))

    def add_words(self, chunks: Mapping[str, int], words: Counter[str]) -> None:
        """Count the words of counted chunks."""
        for chunk, count in chunks.items():
            for word in self.words(chunk):
                words[word] += count


class WordCounter:
    """A table of words and their counts in ``memory`` bytes; the ``with`` block it needs removes temporary files."""

    def __init__(self, do_lower_case: bool = True, *, memory: int = DEFAULT_MEMORY) -> None:
        if memory < MIN_MEMORY:
            raise ConfigError(
                f"memory={amount_of(memory)} is too little for counting words: give at least {amount_of(MIN_MEMORY)}"
            )
        self.memory = memory
        self.do_lower_case = do_lower_case
        self._splitter = _Splitter(do_lower_case)
        self._chunks: Counter[str] = Counter()
        self._waiting_chars = 0
        self._words: Counter[str] = Counter()
        self._spill: tempfile.TemporaryDirectory[str] | None = None
        self._runs: list[Path] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spill is not None:
            self._spill.cleanup()
            self._spill, self._runs = None, []

    def add(self, texts: Iterable[str]) -> None:
        """Count the words of texts; one string instead of several is an InputError."""
        limit, most_chunks = self.memory // BYTES_PER_CHAR, self.memory // BYTES_PER_CHUNK
        for text in _checked(texts):
            for chunks in self._splitter.chunks(text):
                self._chunks.update(chunks)
            self._waiting_chars += len(text)
            if self._waiting_chars > limit or len(self._chunks) > most_chunks:
                self._flush()

    def add_counts(self, counts: Mapping[str, int]) -> None:
        """Add words that were counted elsewhere."""
        for word, count in counts.items():
            self._words[word] += count
        self._bound()

    def items(self) -> Iterator[tuple[str, int]]:
        """Every word once, with its count, sorted by word (by code point)."""
        self._flush()
        runs = map(_read_run, self._runs)
        merged = heapq.merge(*runs, sorted(self._words.items()))
        return ((word, sum(count for _, count in same)) for word, same in groupby(merged, key=itemgetter(0)))

    def most_frequent(self, limit: int) -> dict[str, int]:
        """The ``limit`` most frequent words in descending order; ties are broken by code point."""
        best = heapq.nsmallest(limit, ((-count, word) for word, count in self.items()))
        return {word: -count for count, word in best}

    def _flush(self) -> None:
        self._splitter.add_words(self._chunks, self._words)
        self._chunks = Counter()
        self._waiting_chars = 0
        self._bound()

    def _bound(self) -> None:
        if len(self._words) <= self.memory // BYTES_PER_WORD:
            return
        if self._spill is None:
            remove_old_drafts(Path(tempfile.gettempdir(), "bertkit-words"))
            self._spill = tempfile.TemporaryDirectory(prefix=".bertkit-words.", suffix=f".{os.getpid()}.tmp")
        path = Path(self._spill.name) / f"run-{len(self._runs):05d}"
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{word} {count}\n" for word, count in sorted(self._words.items()))
        self._runs.append(path)
        self._words = Counter()


def count_words(
    texts: Iterable[str], do_lower_case: bool = True, *, memory: int = DEFAULT_MEMORY, workers: int = 1
) -> WordCounter:
    """Count the words of a corpus, which is read once, lazily."""
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}")
    counter = WordCounter(do_lower_case, memory=memory)
    try:
        if workers == 1:
            counter.add(texts)
        else:
            begin = partial(_start_worker, do_lower_case)
            batches, room = _batches(_checked(texts)), (workers + 1) * BATCH_CHARS
            for counts in map_in_processes(
                _count_batch, batches, workers=workers, begin=begin, size_of=lambda b: sum(map(len, b)), room=room
            ):
                counter.add_counts(counts)
    except BaseException:
        counter.__exit__()
        raise
    return counter


_worker: _Splitter | None = None


def _start_worker(do_lower_case: bool) -> None:
    global _worker
    _worker = _Splitter(do_lower_case)


def _count_batch(texts: list[str]) -> Counter[str]:
    assert _worker is not None
    chunks: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for text in texts:
        for part in _worker.chunks(text):
            chunks.update(part)
    _worker.add_words(chunks, words)
    return words


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _checked(texts: Iterable[str]) -> Iterator[str]:
    if isinstance(texts, str):
        raise InputError("texts must be several texts, got one string; pass [text], or the lines of a file")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {number} must be a string, got {type(text).__name__}")
        yield text


def _read_run(path: Path) -> Iterator[tuple[str, int]]:
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            word, _, count = line.rpartition(" ")
            yield word, int(count)
