"""Text to WordPiece ids, fast: the same result as the readable reference, without offsets.

In BERT's tokenization nothing crosses white space, neither words nor marks, so what stands between white space has the
same ids everywhere, and :mod:`bertkit.tokenization.fast.chunk_cache` can look it up. New chunks are normalized together
by one ``str.translate``, and the word-piece model of the ``tokenizers`` package cuts them into pieces. Building
that model takes longer than cutting a short text, so the readable reference cuts short ones.

BERT and ``str.split`` differ in what white space is: U+001C..U+001F and U+0085 split words in Python, and BERT removes
them from text. In printable text U+0020 is the only white space for both; other text is cleaned first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, compress
from typing import TYPE_CHECKING

import numpy as np

from bertkit.ragged import Ids, Ints
from bertkit.tokenization.characters import ASCII_SIGNS, COMMON_SIGNS, FROZEN, REORDERED, space_out
from bertkit.tokenization.fast import chunk_cache as chunks
from bertkit.tokenization.fast.chunk_cache import END, ChunkEncoder
from bertkit.tokenization.reference import BasicTokenizer, WordpieceTokenizer
from bertkit.tokenization.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: Characters whose normalized form is remembered.
MAX_CHARS = 1 << 16
#: Characters of normalized text that are cut into pieces at a time, and those that the reference cuts.
SLICE_CHARS = 1 << 18
FEW_CHARS = 1 << 9

_reordered = re.compile(REORDERED)


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


class FastEncoder(ChunkEncoder):
    """Texts to the ids of word pieces."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._basic = BasicTokenizer(
            vocabulary.do_lower_case, vocabulary.strip_accents, vocabulary.tokenize_chinese_chars
        )
        self._cleaned = _Cleaned()
        self._normalized = _Normalized(self._basic)
        self._too_long = re.compile(f"([^ ]{{{vocabulary.max_input_chars_per_word + 1}}})[^ ]+")
        self._end_id = len(vocabulary.vocab) + len(vocabulary.added)  # no token has it
        whole = {token.content: token.id for token in vocabulary.never_split}
        self._marks = {token: f" {END}{number} " for number, token in enumerate(whole)}
        longest_first = sorted(whole, key=len, reverse=True)
        self._whole_pattern = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        # Most texts have no "[" at all, which is quicker to see than that no token matches.
        starts = {token[0] for token in whole}
        self._sign = starts.pop() if len(starts) == 1 else ""
        self._few = WordpieceTokenizer(
            vocabulary.vocab, vocabulary.unk_token, vocabulary.max_input_chars_per_word, vocabulary.prefix
        )
        super().__init__({self._marks[token].strip(" "): number for token, number in whole.items()})

    def _usual(self) -> dict[str, int]:
        # Beside saving time, known words put frequent ones next to each other in memory: vocabularies begin with them.
        longest, lower = self._vocabulary.max_input_chars_per_word, self._basic.do_lower_case
        return {
            token: number
            for token, number in self._vocabulary.vocab.items()
            if token.isascii()
            and (token.isalnum() or (len(token) == 1 and token in ASCII_SIGNS))
            and not (lower and token != token.lower())
            and len(token) <= longest
        }

    def _blocks(self, texts: Iterable[str]) -> Iterator[str]:
        """Spaces out punctuation and lower-cases ASCII, which changes no id, so that chunks repeat more often."""
        lower, sign, has_whole = self._basic.do_lower_case, self._sign, self._whole_pattern.search
        block: list[str] = []
        size = 0
        for text in texts:
            if len(self._cleaned) > MAX_CHARS:
                self._cleaned.clear()
            if sign in text and has_whole(text):
                # Marks, which no cleaned text can have, take the places of special tokens.
                parts = self._whole_pattern.split(text)
                for place, part in enumerate(parts):
                    parts[place] = self._marks[part] if place % 2 else part.translate(self._cleaned)
                text = "".join(parts)
            elif not text.isprintable():
                text = text.translate(self._cleaned)
            block.append(text.lower() if lower and text.isascii() else text)
            size += len(text)
            if size > chunks.BLOCK_CHARS:
                yield space_out(f" {END} ".join([*block, ""]), COMMON_SIGNS)
                block, size = [], 0
        yield space_out(f" {END} ".join([*block, ""]), COMMON_SIGNS)

    def _work_out(self, new: Sequence[str]) -> Iterator[tuple[Ints, Ids, Ints]]:
        ascii_only = np.fromiter(map(str.isascii, new), bool, len(new))
        for group, normalize in ((ascii_only, self._normalize_ascii), (~ascii_only, self._normalize)):
            if group.any():
                pieces = self._pieces(normalize(list(compress(new, group))))
                ends = np.flatnonzero(pieces == self._end_id)
                sizes = np.diff(ends - np.arange(len(ends)), prepend=0)
                yield np.flatnonzero(group), pieces[pieces != self._end_id], sizes

    def _pieces(self, text: str) -> Ids:
        """Ids of the word pieces of normalized text, some thousand characters at a time: the engine needs memory."""
        if len(text) <= FEW_CHARS:
            return np.fromiter(chain.from_iterable(map(self._few_pieces, text.split())), np.int32)
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

    def _few_pieces(self, word: str) -> list[int]:
        if word == END:
            return [self._end_id]
        return [self._vocabulary.vocab[piece.token] for piece in self._few.pieces(word)]

    @cached_property
    def _words(self) -> Tokenizer:
        """The word-piece model for words that blanks separate, with ``END`` as one more word."""
        from tokenizers import Tokenizer, pre_tokenizers
        from tokenizers.models import WordPiece

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

    def _normalize(self, some: Sequence[str]) -> str:
        """Chunks with ``END`` after each: normalized, blanks between words."""
        if len(self._normalized) > MAX_CHARS:
            self._normalized.reset()
        text = END.join(some) + END
        if self._basic.strip_accents and _reordered.search(text):
            # Marks may change places, so such chunks are normalized as a whole; doing it again changes nothing.
            some = [
                "".join(char for char, _ in self._basic.normalize(chunk)) if _reordered.search(chunk) else chunk
                for chunk in some
            ]
            text = END.join(some) + END
        return text.translate(self._normalized)

    def _normalize_ascii(self, some: Sequence[str]) -> str:
        """The same for ASCII, where little can happen: lower-casing, and punctuation that is a word of its own."""
        text = END.join(some) + END
        return space_out(text.lower() if self._basic.do_lower_case else text, ASCII_SIGNS + END)
