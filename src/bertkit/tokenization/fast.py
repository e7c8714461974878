"""Text to ids, fast: the same result as :mod:`bertkit.tokenization.normalize` and ``wordpiece``, without offsets.

Most words repeat. So text is cut at white space only, and each run of text between white space (a *chunk*) is looked up
in a dictionary that numbers the chunks seen so far; a table has the ids of each number. White space separates
everything else in BERT's tokenization (marks do not move across it, words do not span it), so a chunk has the same ids
wherever it stands. The chunks of a block of text that are new are normalized together with one ``str.translate``, their
words are looked up in a second dictionary, and words that are new are cut into pieces.

What white space is differs between BERT and ``str.split``: U+001C..U+001F and U+0085 split words in Python, and are
removed from text in BERT. Both agree on text of printable characters, where U+0020 is the only white space; other text
is cleaned first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from threading import Lock
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bertkit.tokenization.normalize import BasicTokenizer
from bertkit.tokenization.unicode import FROZEN, REORDERED
from bertkit.tokenization.vocabulary import Vocabulary

Scalar = TypeVar("Scalar", np.int32, np.int64)
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

#: Longer chunks and words are worked out anew each time; they hardly ever repeat.
MAX_CACHED_CHARS = 64
#: A dictionary that is full is emptied: at most about 100 MB for chunks and their ids, 50 MB for words.
MAX_CHUNKS = 1 << 19
MAX_CHUNK_IDS = 1 << 22
MAX_WORDS = 1 << 18
MAX_CHARS = 1 << 16
#: Characters of text that are looked up at a time, and between two rounds of learning.
BLOCK_CHARS = 1 << 14
BATCH_CHARS = 1 << 20
#: Ends a chunk where many stand in one string. Cleaned text never has it.
END = "\x00"

LINE = "\n"
_ASCII_SIGNS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

_reordered = re.compile(REORDERED)
_visible = re.compile(r"[^ ]+")


def gather(starts: Int64, lengths: Int64) -> Int64:
    """Indices ``starts[0] .. starts[0] + lengths[0] - 1``, then those of the next span, and so on."""
    ends = np.cumsum(lengths)
    shifts = starts - ends + lengths
    return np.repeat(shifts, lengths) + np.arange(ends[-1] if len(ends) else 0)


def _space_out(text: str) -> str:
    """Blanks around ASCII punctuation."""
    for sign in _ASCII_SIGNS:
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


class _Pieces(dict[str, bytes]):
    """Word, or rest of a word, to its ids as int32 bytes; works out what it lacks. No bytes: it cannot be covered.

    Args:
        vocab: pieces that may stand first here, with their ids as int32 bytes.
        rest: the same for what follows a first piece; None: this dictionary itself.
    """

    def __init__(self, vocab: Mapping[str, bytes], rest: _Pieces | None = None) -> None:
        self._vocab = vocab
        self._longest = max(map(len, vocab), default=0)
        self._rest = self if rest is None else rest
        self.reset()

    def reset(self) -> None:
        """Forget what was worked out."""
        self.clear()
        self.update(self._vocab)

    def __missing__(self, word: str) -> bytes:
        known = self._vocab
        for end in range(min(len(word) - 1, self._longest), 0, -1):
            first = known.get(word[:end])
            if first is not None:
                rest = self._rest[word[end:]]
                ids = first + rest if rest else b""
                break
        else:
            ids = b""
        self[word] = ids
        return ids


class _Words(dict[str, bytes]):
    """Word (normalized) to its ids as int32 bytes; works out what it lacks. ``END`` is the id -1."""

    def __init__(self, vocab: Mapping[str, int], unk_token: str, max_chars: int, prefix: str) -> None:
        packed = {token: np.int32(number).tobytes() for token, number in vocab.items()}
        self._rest = _Pieces({token[len(prefix) :]: ids for token, ids in packed.items() if token.startswith(prefix)})
        self._first = packed
        self._longest = max(map(len, packed))
        self._unknown = packed[unk_token]
        self._max_chars = max_chars
        self.reset()

    def reset(self) -> None:
        """Forget every word that is not one piece."""
        self.clear()
        self._rest.reset()
        self.update({word: ids for word, ids in self._first.items() if len(word) <= self._max_chars})
        self[END] = np.int32(-1).tobytes()

    def __missing__(self, word: str) -> bytes:
        if len(word) > self._max_chars:
            return self._unknown
        known = self._first
        for end in range(min(len(word) - 1, self._longest), 0, -1):
            first = known.get(word[:end])
            if first is not None:
                rest = self._rest[word[end:]]
                ids = first + rest if rest else self._unknown
                break
        else:
            ids = self._unknown
        self[word] = ids
        return ids


class FastEncoder:
    """Texts to ids, with the dictionaries that make it fast. Safe to share between threads.

    Args:
        basic: how text is normalized.
        vocab, unk_token, max_chars, prefix: see :class:`~bertkit.tokenization.WordpieceTokenizer`.
        whole: tokens with ids that are matched in the raw text and never split.
    """

    def __init__(
        self,
        basic: BasicTokenizer,
        vocab: Mapping[str, int],
        unk_token: str,
        max_chars: int,
        prefix: str,
        whole: Mapping[str, int],
    ) -> None:
        self._basic = basic
        self._lock = Lock()
        self._cleaned = _Cleaned()
        self._normalized = _Normalized(basic)
        self._words = _Words(vocab, unk_token, max_chars, prefix)
        self._whole = dict(whole)
        self._marks = {token: f" {END}{number} " for number, token in enumerate(whole)}
        longest_first = sorted(whole, key=len, reverse=True)
        self._whole_pattern = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        # Most texts have no "[" at all, which is quicker to see than that no token matches.
        starts = {token[0] for token in whole}
        self._sign = starts.pop() if len(starts) == 1 else ""
        self._reset()

    def _reset(self) -> None:
        """Forget every chunk but the marks of the tokens that are never split."""
        self._chunks: defaultdict[str, int] = defaultdict(count(len(self._whole)).__next__)
        self._chunks.update({mark.strip(" "): number for number, mark in enumerate(self._marks.values())})
        self._num_chunks = len(self._whole)  # chunks numbered so far, also those forgotten since
        self._num_ids = len(self._whole)
        self._ids = np.zeros(1 << 12, np.int32)
        self._ids[: self._num_ids] = list(self._whole.values())
        self._starts = np.zeros(1 << 12, np.int64)
        self._starts[: self._num_chunks + 1] = np.arange(self._num_chunks + 1)

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
        """The texts, prepared, one a line, some thousand characters at a time.

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
                yield _space_out(LINE.join(block))
                block, size = [], 0
        if block:
            yield _space_out(LINE.join(block))

    def _mark_whole(self, text: str) -> str:
        """Clean a text with special tokens in it; marks, which no cleaned text can have, take their places."""
        parts = self._whole_pattern.split(text)
        for place, part in enumerate(parts):
            parts[place] = self._marks[part] if place % 2 else part.translate(self._cleaned)
        return "".join(parts)

    def _encode_batch(self, blocks: Iterator[str]) -> tuple[Int32, Int64] | None:
        """Ids and lengths of the texts of the next blocks; None at the end."""
        with self._lock:
            if len(self._chunks) > MAX_CHUNKS or self._num_ids > MAX_CHUNK_IDS:
                self._reset()
            if len(self._cleaned) > MAX_CHARS:
                self._cleaned.clear()
            known = len(self._chunks)
            numbers, counts = self._number(blocks)
            if not counts:
                return None
            if len(self._chunks) > known:
                self._learn(list(islice(reversed(self._chunks), len(self._chunks) - known))[::-1])
            starts = self._starts[numbers]
            sizes = self._starts[numbers + 1] - starts
            ids = self._ids[gather(starts, sizes)]
        before = np.concatenate([[0], np.cumsum(sizes)])
        ends = np.cumsum(counts)
        return ids, before[ends] - before[ends - counts]

    def _number(self, blocks: Iterator[str]) -> tuple[Int64, list[int]]:
        """Numbers of the chunks of the next blocks, and how many chunks each text has.

        A chunk that is not in the dictionary gets the next number as it is looked up. The strings of a block are let
        go before the next block, so that the memory they lie in is still in the processor's cache.
        """
        number = self._chunks.__getitem__
        numbers: list[Int64] = [np.zeros(0, np.int64)]
        counts: list[int] = []
        size = 0
        for block in blocks:
            lines = [line.split() for line in block.split(LINE)]
            sizes = list(map(len, lines))
            numbers.append(np.fromiter(map(number, chain.from_iterable(lines)), np.int64, sum(sizes)))
            counts += sizes
            size += len(block)
            if size > BATCH_CHARS:
                break
        return np.concatenate(numbers), counts

    def _learn(self, new: Sequence[str]) -> None:
        """Work out the ids of chunks, in the order of their numbers."""
        packed = np.frombuffer(self._pieces(new), np.int32)
        ends = np.flatnonzero(packed == -1)
        ends -= np.arange(len(ends))
        ids = packed[packed >= 0]
        first, last = self._num_chunks + 1, self._num_chunks + 1 + len(new)
        self._starts = _grown(self._starts, last)
        self._starts[first:last] = ends + self._num_ids
        self._ids = _grown(self._ids, self._num_ids + len(ids))
        self._ids[self._num_ids : self._num_ids + len(ids)] = ids
        self._num_chunks += len(new)
        self._num_ids += len(ids)
        for chunk in new:
            if len(chunk) > MAX_CACHED_CHARS:
                del self._chunks[chunk]

    def _pieces(self, chunks: Sequence[str]) -> bytes:
        """Ids of the chunks as int32 bytes, -1 after each."""
        text = self._normalize(chunks)
        # Words one by one where they are many, so that ten million ideographs are not ten million strings at once.
        words = (match[0] for match in _visible.finditer(text)) if len(text) > BATCH_CHARS << 2 else text.split()
        packed = b"".join(map(self._words.__getitem__, words))
        if len(self._words) > MAX_WORDS:
            self._words.reset()
        if len(self._normalized) > MAX_CHARS:
            self._normalized.reset()
        return packed

    def _normalize(self, chunks: Sequence[str]) -> str:
        """Chunks with ``END`` after each: normalized, blanks between words."""
        text = END.join(chunks) + END
        if self._basic.strip_accents and not text.isascii() and _reordered.search(text):
            text = END.join(self._reorder(chunk) if _reordered.search(chunk) else chunk for chunk in chunks) + END
        return text.translate(self._normalized)

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
    return FastEncoder(
        BasicTokenizer(vocabulary.do_lower_case, vocabulary.strip_accents, vocabulary.tokenize_chinese_chars),
        vocabulary.vocab,
        vocabulary.unk_token,
        vocabulary.max_input_chars_per_word,
        vocabulary.prefix,
        {token.content: token.id for token in vocabulary.never_split},
    )
