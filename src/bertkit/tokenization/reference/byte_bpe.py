"""Text to byte-level BPE tokens, readably: split into words, write bytes as characters, merge pairs.

The steps are those of GPT-2 (Radford et al. 2019, section 2.2; ``encoder.py`` of openai/gpt-2), whose tokenizer
RoBERTa took over (Liu et al. 2019, section 4.4). ``"Hello world"`` becomes ``Hello Ġworld``: a word keeps the blank
before it, written ``Ġ``. Nothing is lost: the tokens give back the text, byte for byte. The pair of neighbouring tokens
that stands first in the list of merges is joined, then the next, until no pair of the list is left.

This is the reference that the fast path (:mod:`bertkit.tokenization.fast.fast_bpe`) is tested against. Merging takes
time quadratic in the length of a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise

from bertkit.tokenization.characters import BPE_LETTERS, BPE_NUMBERS, regex_class
from bertkit.tokenization.fast.whole_tokens import SPACE, WholeTokens
from bertkit.tokenization.reference.wordpiece import Piece
from bertkit.tokenization.vocabulary import BYTE_CHARS, AddedToken

#: Words whose tokens are remembered.
MAX_WORDS = 1 << 16
#: What is left out of the places of tokens.
BLANKS = BYTE_CHARS[ord(" ")] + SPACE


@cache
def word_pattern() -> re.Pattern[str]:
    """How GPT-2 splits text: English contractions, runs of letters, of digits, of other signs, each with one blank.

    White space before a word's own blank is a word of its own. Letters and numbers are those of one version of Unicode,
    whatever the Python.
    """
    letter, number = regex_class(BPE_LETTERS), regex_class(BPE_NUMBERS)
    return re.compile(
        rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{letter}]+| ?[{number}]+| ?[^{SPACE}{letter}{number}]+"
        rf"|[{SPACE}]+(?![^{SPACE}])|[{SPACE}]+"
    )


def _utf8(char: str) -> bytes:
    """A lone surrogate, which no UTF-8 text can hold, becomes U+FFFD."""
    return ("\ufffd" if "\ud800" <= char <= "\udfff" else char).encode()


def merge(tokens: Sequence[str], ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Join neighbours until no pair has a rank: the lowest rank first, of equal ones the leftmost."""
    merged = list(tokens)
    while len(merged) > 1:
        pairs = [(ranks.get(pair, len(ranks)), at) for at, pair in enumerate(pairwise(merged))]
        rank, at = min(pairs)
        if rank == len(ranks):
            break
        merged[at : at + 2] = [merged[at] + merged[at + 1]]
    return merged


class ByteBpeTokenizer:
    """Text to byte-level BPE tokens.

    Args:
        vocab: the known tokens, and their ids.
        merges: pairs of tokens to join, the most important first.
        never_split: tokens kept whole wherever they appear in the text.
        add_prefix_space: put a blank before a text (and before what follows a token that is never split) that does
            not begin with one.
        trim_offsets: leave white space out of the places of tokens.
    """

    def __init__(
        self,
        vocab: Mapping[str, int],
        merges: Iterable[tuple[str, str]],
        never_split: Iterable[AddedToken] = (),
        add_prefix_space: bool = False,
        trim_offsets: bool = True,
    ) -> None:
        self.vocab = vocab
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.add_prefix_space = add_prefix_space
        self.trim_offsets = trim_offsets
        self._whole = WholeTokens(never_split)
        self._merged = lru_cache(MAX_WORDS)(lambda word: merge(word, self.ranks))

    def tokenize(self, text: str) -> list[str]:
        """The tokens of ``text``."""
        return [piece.token for piece in self.pieces(text)]

    def pieces(self, text: str) -> Iterator[Piece]:
        """The tokens of ``text`` with their places in it; a token that is a part of a character has all of it."""
        for start, end, token in self._whole.split(text):
            if token is not None:
                yield Piece(token.content, *self._trim(text[start:end], start, end))
                continue
            part = text[start:end]
            added = self.add_prefix_space and not part.startswith(" ")
            for word in word_pattern().finditer(" " + part if added else part):
                yield from self._word(word[0], start + word.start() - added, start)

    def _word(self, word: str, at: int, first: int) -> Iterator[Piece]:
        """Tokens of one word that stands at ``at``; a blank that was added has the place of the ``first`` character."""
        chars: list[str] = []
        sources: list[int] = []  # for each byte, the place of the character it comes from
        for number, char in enumerate(word):
            units = [BYTE_CHARS[byte] for byte in _utf8(char)]
            chars += units
            sources += [max(at + number, first)] * len(units)
        done = 0
        for token in self._merged("".join(chars)):
            inside = sources[done : done + len(token)]
            yield Piece(token, *self._trim(token, inside[0], inside[-1] + 1))
            done += len(token)

    def _trim(self, token: str, start: int, end: int) -> tuple[int, int]:
        """The place of a token without the blanks at its ends.

        As in the ``tokenizers`` package, which does not know which blank was added: with ``add_prefix_space`` a single
        one stays with what begins the text, and one too many is taken from what follows a token that is never split.
        """
        if not self.trim_offsets:
            return start, end
        leading = len(token) - len(token.lstrip(BLANKS))
        if self.add_prefix_space and leading == 1 and start == 0:
            leading = 0
        trailing = len(token) - len(token.rstrip(BLANKS))
        start = min(start + leading, end)
        return start, max(end - trailing, start) if trailing <= end else end
