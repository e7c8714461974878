"""Text to ids, fast: the same result as :mod:`bertkit.tokenization.normalize` and ``wordpiece``, without offsets.

Most words repeat. So text is cut at white space only, and each run of text between white space (a *chunk*) is looked up
in a dictionary that numbers the chunks seen so far; a table has the ids of each number. White space separates
everything else in BERT's tokenization (marks do not move across it, words do not span it), so a chunk has the same ids
wherever it stands. The chunks of a stretch of text that are new are normalized together with one ``str.translate``
and cut into pieces by the word-piece model of the ``tokenizers`` package. Of much text, Arrow finds the different
chunks before the dictionary sees them.

What white space is differs between BERT and ``str.split``: U+001C..U+001F and U+0085 split words in Python, and are
removed from text in BERT. Both agree on text of printable characters, where U+0020 is the only white space; other text
is cleaned first.
"""

from __future__ import annotations

import re
import string
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from importlib import import_module
from itertools import compress, count, islice
from threading import Lock
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordPiece

from bertkit.tokenization.normalize import BasicTokenizer
from bertkit.tokenization.unicode import FROZEN, REORDERED
from bertkit.tokenization.vocabulary import Vocabulary

Scalar = TypeVar("Scalar", np.int32, np.int64)
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

#: Longer chunks are worked out anew each time; they hardly ever repeat.
MAX_CACHED_CHARS = 64
#: The dictionary is emptied when it is full: at most about 100 MB, with the ids.
MAX_CHUNKS = 1 << 19
MAX_CHUNK_IDS = 1 << 22
MAX_CHARS = 1 << 16
#: Characters of text that are looked up at a time, and between two rounds of learning.
BLOCK_CHARS = 1 << 14
BATCH_CHARS = 1 << 22
#: From this much text on, Arrow splits it; for less, importing Arrow takes longer than it saves.
ARROW_CHARS = 1 << 19
#: Characters of normalized text that are cut into pieces at a time.
SLICE_CHARS = 1 << 18
#: Ends a text, and a chunk, where many stand in one string. Cleaned text never has it.
END = "\x00"

#: Punctuation that often stands beside a word.
COMMON_SIGNS = ",.()\"'-"

_reordered = re.compile(REORDERED)


def gather(starts: Int64, lengths: Int64) -> Int64:
    """Indices ``starts[0] .. starts[0] + lengths[0] - 1``, then those of the next span, and so on."""
    ends = np.cumsum(lengths)
    shifts = starts - ends + lengths
    return np.repeat(shifts, lengths) + np.arange(ends[-1] if len(ends) else 0)


def _space_out(text: str, signs: str) -> str:
    """Blanks around each of ``signs``."""
    for sign in signs:
        if sign in text:
            text = text.replace(sign, f" {sign} ")
    return text


class _Cleaned(dict[int, int | str | None]):
    """``str.translate`` table: control characters go, white space becomes a blank."""

    def __missing__(self, point: int) -> int | str | None:
        char = chr(point)
        cleaned = None if FROZEN.is_removed(char) else " " if FROZEN.is_space(char) else point
        self[point] = cleaned
        return cleaned


class _Normalized(dict[int, str]):
    """``str.translate`` table: each character normalized, with blanks around it where it is a word of its own."""

    def __init__(self, basic: BasicTokenizer) -> None:
        self._basic = basic
        self.reset()

    def reset(self) -> None:
        """Forget every character."""
        self.clear()
        self[ord(END)] = f" {END} "

    def __missing__(self, point: int) -> str:
        chars = [char for char, _ in self._basic.normalize(chr(point))]
        spaced = "".join(f" {char} " if FROZEN.is_punctuation(char) else char for char in chars)
        self[point] = spaced
        return spaced


class FastEncoder:
    """Texts to ids, with the dictionary that makes it fast. Safe to share between threads.

    Attributes:
        max_chunks: the dictionary is emptied when it has more; None: :data:`MAX_CHUNKS`. For texts of megabytes, in
            which most words repeat, a small one is as fast.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.arrow_chars = ARROW_CHARS
        self.max_chunks: int | None = None
        self._vocabulary = vocabulary
        self._basic = BasicTokenizer(
            vocabulary.do_lower_case, vocabulary.strip_accents, vocabulary.tokenize_chinese_chars
        )
        self._lock = Lock()
        self._cleaned = _Cleaned()
        self._normalized = _Normalized(self._basic)
        self._too_long = re.compile(f"([^ ]{{{vocabulary.max_input_chars_per_word + 1}}})[^ ]+")
        self._end_id = len(vocabulary.vocab) + len(vocabulary.added)  # no token has it
        whole = {token.content: token.id for token in vocabulary.never_split}
        self._whole = whole
        self._marks = {token: f" {END}{number} " for number, token in enumerate(whole)}
        longest_first = sorted(whole, key=len, reverse=True)
        self._whole_pattern = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        # Most texts have no "[" at all, which is quicker to see than that no token matches.
        starts = {token[0] for token in whole}
        self._sign = starts.pop() if len(starts) == 1 else ""
        self._reset()

    def _known(self) -> dict[str, int]:
        """Chunks that need no learning, and their ids: ``END``, marks of tokens never split, words of the vocabulary.

        Beside saving time, this puts frequent words next to each other in memory, for vocabularies begin with them.
        """
        lower, limit = self._basic.do_lower_case, self._vocabulary.max_input_chars_per_word
        # Arrow's split leaves empty strings at the ends of a text.
        known = {END: 0, "": 0} | {mark.strip(" "): self._whole[token] for token, mark in self._marks.items()}
        for token, number in self._vocabulary.vocab.items():
            is_word = (
                token.isascii()
                and (token.isalnum() or (len(token) == 1 and token in string.punctuation))
                and len(token) <= limit
            )
            if is_word and not (lower and token != token.lower()):
                known[token] = number
        return known

    def _reset(self) -> None:
        """Forget every chunk but those that were known from the start."""
        known = self._known()
        self._num_known = self._num_ids = len(known)
        self._num_chunks = len(known)  # numbered so far, also those forgotten since
        self._chunks = defaultdict(count(len(known)).__next__, zip(known, range(len(known)), strict=True))
        self._ids = np.fromiter(known.values(), np.int32, len(known))
        self._starts = np.arange(len(known))
        self._sizes = np.ones(len(known), np.int64)
        self._sizes[:2] = 0  # END and the empty string stand for no token

    def encode(self, texts: Iterable[str]) -> tuple[Int32, Int64]:
        """Ids of all texts one after another, int32 ``(T,)``, without [CLS] and [SEP]; how many each has, ``(B,)``."""
        ids: list[Int32] = [np.zeros(0, np.int32)]
        lengths: list[Int64] = [np.zeros(0, np.int64)]
        blocks = self._blocks(texts)
        while batch := self._encode_batch(blocks):
            ids.append(batch[0])
            lengths.append(batch[1])
        return np.concatenate(ids), np.concatenate(lengths)

    def _blocks(self, texts: Iterable[str]) -> Iterator[str]:
        """The texts, prepared, with ``END`` after each, some thousand characters at a time.

        What is done to them does not change their ids, and makes chunks repeat more often: ASCII punctuation, always
        a word of its own, is given blanks around it; ASCII text is lower-cased where that is to happen anyway.
        """
        lower, sign, has_whole = self._basic.do_lower_case, self._sign, self._whole_pattern.search
        block: list[str] = []
        size = 0
        for text in texts:
            if sign in text and has_whole(text):
                text = self._mark_whole(text)
            elif not text.isprintable():
                text = text.translate(self._cleaned)
            block.append(text.lower() if lower and text.isascii() else text)
            size += len(text)
            if size > BLOCK_CHARS:
                yield _space_out(f" {END} ".join([*block, ""]), COMMON_SIGNS)
                block, size = [], 0
        yield _space_out(f" {END} ".join([*block, ""]), COMMON_SIGNS)

    def _mark_whole(self, text: str) -> str:
        """Clean a text with special tokens in it; marks, which no cleaned text can have, take their places."""
        parts = self._whole_pattern.split(text)
        for place, part in enumerate(parts):
            parts[place] = self._marks[part] if place % 2 else part.translate(self._cleaned)
        return "".join(parts)

    def _encode_batch(self, blocks: Iterator[str]) -> tuple[Int32, Int64] | None:
        """Ids and lengths of the texts of the next blocks; None at the end."""
        with self._lock:
            max_chunks = MAX_CHUNKS if self.max_chunks is None else self.max_chunks
            if len(self._chunks) > self._num_known + max_chunks or self._num_ids > self._num_known + MAX_CHUNK_IDS:
                self._reset()
            if len(self._cleaned) > MAX_CHARS:
                self._cleaned.clear()
            known = len(self._chunks)
            try:
                numbers = self._number(blocks)
                if len(self._chunks) > known:
                    self._learn(list(islice(reversed(self._chunks), len(self._chunks) - known))[::-1])
            except BaseException:
                # Interrupted with chunks that have a number but no ids: nothing numbered may be used again.
                self._reset()
                raise
            if not len(numbers):
                return None
            sizes = self._sizes[numbers]
            ids = self._ids[gather(self._starts[numbers], sizes)]
        return ids, np.diff(np.cumsum(sizes)[numbers == 0], prepend=0)

    def _number(self, blocks: Iterator[str]) -> Int64:
        """Numbers of the chunks of the next blocks.

        A chunk that is not in the dictionary gets the next number as it is looked up. Of much text, Arrow finds the
        different chunks first, so that only those become Python strings.
        """
        batch: list[str] = []
        size = 0
        for block in blocks:
            batch.append(block)
            size += len(block)
            if size > BATCH_CHARS:
                break
        number = self._chunks.__getitem__
        if not batch or size < self.arrow_chars:
            chunks = [chunk for block in batch for chunk in block.split()]
            return np.fromiter(map(number, chunks), np.int64, len(chunks))
        arrow, compute = import_module("pyarrow"), import_module("pyarrow.compute")
        # By way of buffers: pa.array() and to_numpy() would import pandas where it is installed, 40 MB of memory.
        text = " ".join(batch).encode()
        ends = np.array([0, len(text)], np.int64)
        whole = arrow.LargeStringArray.from_buffers(1, arrow.py_buffer(ends), arrow.py_buffer(text))
        split = compute.ascii_split_whitespace(whole)
        chunks = split.flatten().dictionary_encode()
        different = chunks.dictionary.to_pylist()
        numbers = np.fromiter(map(number, different), np.int64, len(different))
        found: Int64 = numbers[np.frombuffer(chunks.indices.buffers()[1], np.int32, len(chunks))]
        return found

    def _learn(self, new: Sequence[str]) -> None:
        """Work out the ids of chunks, in the order of their numbers."""
        numbers = np.arange(self._num_chunks, self._num_chunks + len(new))
        self._num_chunks += len(new)
        self._starts = _grown(self._starts, self._num_chunks)
        self._sizes = _grown(self._sizes, self._num_chunks)
        ascii_only = np.fromiter(map(str.isascii, new), bool, len(new))
        for group, normalize in ((ascii_only, self._normalize_ascii), (~ascii_only, self._normalize)):
            if group.any():
                self._store(numbers[group], self._pieces(normalize(list(compress(new, group)))))
        for chunk in new:
            if len(chunk) > MAX_CACHED_CHARS:
                del self._chunks[chunk]

    def _store(self, numbers: Int64, pieces: Int32) -> None:
        """Keep the ids of the chunks with these numbers."""
        ends = np.flatnonzero(pieces == self._end_id)
        ids = pieces[pieces != self._end_id]
        ends -= np.arange(len(ends))
        self._sizes[numbers] = np.diff(ends, prepend=0)
        self._starts[numbers] = self._num_ids + ends - self._sizes[numbers]
        self._ids = _grown(self._ids, self._num_ids + len(ids))
        self._ids[self._num_ids : self._num_ids + len(ids)] = ids
        self._num_ids += len(ids)

    def _pieces(self, text: str) -> Int32:
        """Ids of the word pieces of normalized text, some thousand characters at a time: the engine needs memory."""
        found = [np.zeros(0, np.int32)]
        start = 0
        while start < len(text):
            end = text.find(" ", start + SLICE_CHARS)
            end = len(text) if end < 0 else end
            words = text[start:end]
            if len(words) > 2 * SLICE_CHARS:  # with a word of absurd length: its beginning is too long already
                words = self._too_long.sub(r"\1", words)
            (encoding,) = self._words.encode_batch_fast([words])
            found.append(np.array(encoding.ids, np.int32))
            start = end
        return np.concatenate(found)

    @cached_property
    def _words(self) -> Tokenizer:
        """The word-piece model for words that blanks separate, with ``END`` as one more word."""
        vocabulary = self._vocabulary
        model = WordPiece(
            {**vocabulary.vocab, END: self._end_id},
            unk_token=vocabulary.unk_token,
            max_input_chars_per_word=vocabulary.max_input_chars_per_word,
            continuing_subword_prefix=vocabulary.prefix,
        )
        words = Tokenizer(model)
        words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return words

    def _normalize(self, chunks: Sequence[str]) -> str:
        """Chunks with ``END`` after each: normalized, blanks between words."""
        if len(self._normalized) > MAX_CHARS:
            self._normalized.reset()
        text = END.join(chunks) + END
        if self._basic.strip_accents and _reordered.search(text):
            text = END.join(self._reorder(chunk) if _reordered.search(chunk) else chunk for chunk in chunks) + END
        return text.translate(self._normalized)

    def _normalize_ascii(self, chunks: Sequence[str]) -> str:
        """The same for ASCII, where little can happen: lower-casing, and punctuation that is a word of its own."""
        text = END.join(chunks) + END
        return _space_out(text.lower() if self._basic.do_lower_case else text, string.punctuation + END)

    def _reorder(self, chunk: str) -> str:
        """Normalize a chunk in which marks may change places. To normalize the result again changes nothing."""
        return "".join(char for char, _ in self._basic.normalize(chunk))


def _grown(array: NDArray[Scalar], size: int) -> NDArray[Scalar]:
    """The array with room for ``size`` elements."""
    if size <= len(array):
        return array
    return np.concatenate([array, np.zeros(max(size, len(array)), array.dtype)])


def fast_encoder(vocabulary: Vocabulary) -> FastEncoder | None:
    """The fast path; None where a token is to be found in normalized text or takes white space with it."""
    if not all(token.is_plain for token in vocabulary.never_split):
        return None
    return FastEncoder(vocabulary)
