"""bertkit's call, its fast path and its readable reference beside the peer that they must equal."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.tokenization import BertTokenizer, FullTokenizer
from bertkit.tokenization.learn.word_counts import DEFAULT_MEMORY, count_words
from bertkit.tokenization.learn.wordpiece_learner import BYTES_PER_WORD, DEFAULT_SIZE, vocabulary_from_counts

CASES = ("uncased", "cased")


def learn_vocabulary(
    texts: Iterable[str],
    size: int = DEFAULT_SIZE,
    do_lower_case: bool = True,
    *,
    extend: Sequence[str] | None = None,
    memory: int = DEFAULT_MEMORY,
    workers: int = 1,
) -> list[str]:
    """A vocabulary of texts, as ``bertkit vocab`` learns it."""
    with count_words(texts, do_lower_case, memory=memory, workers=workers) as words:
        counts = words.most_frequent(memory // BYTES_PER_WORD)
    return vocabulary_from_counts(counts, size, extend=extend)


def vocab_file(shared: Path, case: str) -> Path:
    return shared / "data" / "vocab" / f"bert-base-{case}-vocab.txt"


class Contestants:
    """The tokenizers for one vocabulary."""

    def __init__(self, path: Path, case: str) -> None:
        from transformers import BertTokenizer as Peer

        lower = case == "uncased"
        self.ours = BertTokenizer(vocab_file=path, do_lower_case=lower)
        self.by_arrow = BertTokenizer(vocab_file=path, do_lower_case=lower)
        assert self.by_arrow._fast is not None
        self.by_arrow._fast.arrow_chars = 0  # as for much text, however little there is
        self.reference = FullTokenizer(path, do_lower_case=lower)
        self.peer = Peer(vocab=dict(self.ours.vocab), do_lower_case=lower, model_max_length=512)

    def peer_rows(self, texts: Sequence[str]) -> list[Any]:
        return self.peer.backend_tokenizer.encode_batch(list(texts), add_special_tokens=False)

    def mismatches(self, texts: Sequence[str], *, reference: bool = True) -> list[str]:
        """Texts that the fast path, or the readable reference (ids and offsets), tokenizes in another way."""
        texts = list(texts)
        expected = self.peer_rows(texts)
        wrong: list[str] = []
        lengths = np.array([len(row) for row in expected])
        flat = np.fromiter((number for row in expected for number in row.ids), np.int64, int(lengths.sum()))
        for fast_path in (self.ours, self.by_arrow):
            ragged = fast_path.encode_ragged(texts, add_special_tokens=False)
            if not (np.array_equal(ragged.lengths, lengths) and np.array_equal(ragged.ids, flat)):
                rows = zip(texts, expected, ragged, strict=True)
                wrong += [text for text, row, ids in rows if ids.tolist() != row.ids]
        if reference:
            wrong += [text for text, row in zip(texts, expected, strict=True) if not self._reference_agrees(text, row)]
        return wrong

    def _reference_agrees(self, text: str, row: Any) -> bool:
        pieces = list(self.reference.pieces(text))
        tokens = [piece.token for piece in pieces]
        offsets = [(piece.start, piece.end) for piece in pieces]
        return tokens == row.tokens and offsets == row.offsets


@cache
def contestants(shared: Path, case: str) -> Contestants:
    return Contestants(vocab_file(shared, case), case)


def read_lines(path: Path) -> Iterator[str]:
    """Every text of a data file: lines, or every string of a JSON file; bytes that are not UTF-8 are replaced."""
    opener = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8", errors="replace", newline="\n") as lines:  # type: ignore[operator]
        if ".jsonl" in path.suffixes:
            for line in lines:
                yield from strings(json.loads(line))
        elif ".json" in path.suffixes:
            yield from strings(json.load(lines))
        else:
            for line in lines:
                yield line.removesuffix("\n")


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from strings(part)


def data_files(shared: Path) -> list[Path]:
    """Every data set's files; vocabularies and the training part of the pre-training text left out."""
    skipped = {"SOURCE.md", "wikinews_en.train.txt.xz", "wikipedia_en.train.txt.xz"}
    files = (path for path in sorted((shared / "data").rglob("*")) if path.is_file() and path.parent.name != "vocab")
    return [path for path in files if path.name not in skipped]


def batches(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    bounds = [*range(0, len(texts), size), len(texts)]
    return (texts[start:end] for start, end in pairwise(bounds) if end > start)


CODE_POINTS = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
