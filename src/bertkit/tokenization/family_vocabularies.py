"""Vocabularies of other families than BERT's: of byte pair encoding, and of unigram pieces."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from bertkit.errors import CheckpointError, shorten
from bertkit.tokenization.vocabulary import BLANK, Splits, TokenTable


@dataclass(frozen=True, kw_only=True)
class MergedVocabulary(TokenTable):
    """What the vocabularies of byte pair encoding (BPE) share; the most important merges come first."""

    merges: tuple[tuple[str, str], ...]
    add_prefix_space: bool = False
    merges_source: str = field(default="the merges", compare=False)

    def check_merges(self) -> None:
        """Check that the vocabulary has the parts of every merge, and what they make."""
        tokens = chain(chain.from_iterable(self.merges), map("".join, self.merges))
        if all(map(self.vocab.__contains__, tokens)):  # no loop: there may be 580,000
            return
        for number, (left, right) in enumerate(self.merges):
            for token in (left, right, left + right):
                if token not in self.vocab:
                    raise CheckpointError(
                        f"{self.merges_source}: merge {number:,} joins {left!r:.80} and {right!r:.80}, but "
                        f"{token!r:.80} is not in {self.source}; the two do not belong together"
                    )


@dataclass(frozen=True, kw_only=True)
class BpeVocabulary(MergedVocabulary):
    """Everything that makes up a byte-level BPE tokenizer: RoBERTa's, ModernBERT's (``nfc``: composed characters)."""

    nfc: bool = False
    trim_offsets: bool = True

    def __post_init__(self) -> None:
        self.check_tokens()
        bytes_without = [char for char in BYTE_CHARS if char not in self.vocab]
        if bytes_without:
            raise CheckpointError(
                f"{self.source} ({len(self.vocab):,} tokens) has no token for {len(bytes_without)} of the 256 bytes "
                f"({shorten(bytes_without)}): text with them would be lost"
            )
        self.check_merges()


@dataclass(frozen=True, kw_only=True)
class FallbackVocabulary(MergedVocabulary):
    """Everything that makes up a BPE tokenizer of characters that falls back on bytes: Gemma's, which mmBERT has.

    vocab: a blank is written as :data:`BLANK`; ``<0x00>`` ... ``<0xFF>`` are the bytes of characters without a token.
    add_prefix_space: whether text is cut before every blank, and its parts begin with one; otherwise it is not cut.
    """

    cls_token: str = "<bos>"
    sep_token: str = "<eos>"

    def __post_init__(self) -> None:
        self.check_tokens()
        self.check_unknown()
        self.check_merges()

    @property
    def joins_words(self) -> bool:
        """Whether a token may span the end of a word and the blank behind it."""
        return BLANK not in self.vocab or any(
            right.startswith(BLANK) and not left.endswith(BLANK) for left, right in self.merges
        )


@dataclass(frozen=True, kw_only=True)
class UnigramVocabulary(TokenTable):
    """Everything that makes up a unigram tokenizer: ALBERT's, CamemBERT's, DeBERTa's, T5's, XLM-R's.

    pieces: every token with its score (log probability), in the order of ids.
    charsmap: SentencePiece's compiled table of replacements; before it: quotes, accents, lower case.
    model: the SentencePiece file of the pieces, which is written back; None if they are from elsewhere.
    """

    vocab: Mapping[str, int] = field(init=False, compare=False, repr=False)
    pieces: tuple[tuple[str, float], ...]
    charsmap: bytes | None = None
    replace_quotes: bool = False
    keep_accents: bool = True
    do_lower_case: bool = False
    add_prefix_space: bool = True
    splits: Splits = "at white space"
    model: bytes | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        vocab = {piece: number for number, (piece, _) in enumerate(self.pieces)}
        if len(vocab) != len(self.pieces):
            repeated = next(piece for number, (piece, _) in enumerate(self.pieces) if vocab[piece] != number)
            raise CheckpointError(f"{self.source} has {repeated!r} twice; pieces must be unique")
        wrong = next((piece for piece, score in self.pieces if not math.isfinite(score)), None)
        if wrong is not None:
            raise CheckpointError(f"{self.source}: the score of {wrong!r} is not a finite number")
        object.__setattr__(self, "vocab", vocab)
        self.check_tokens()
        self.check_unknown()
        if self.charsmap:
            check_charsmap(self.charsmap, self.source)


def _byte_chars() -> str:
    """The character for each byte: itself if it is visible, otherwise the next one from U+0100."""
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in visible else next(hidden)) for byte in range(256))


#: Radford et al. 2019 (GPT-2), ``encoder.py``: bytes as characters that are neither white space nor control.
BYTE_CHARS = _byte_chars()


def check_charsmap(charsmap: bytes, source: str) -> None:
    """See that no lookup in a compiled normalization can leave it.

    Its first four bytes are the size of the trie, a double array of 32-bit units; the replacements follow, each ended
    by a zero byte. A unit either leads to 256 other units or holds the place of a replacement.
    """
    try:
        (size,) = struct.unpack_from("<I", charsmap)
        if size % 4 or size == 0 or 4 + size > len(charsmap):
            raise ValueError(f"a trie of {size:,} bytes in {len(charsmap):,}")
        units = np.frombuffer(charsmap, "<u4", size // 4, 4)
        replacements = charsmap[4 + size :]
        replacements.decode()
        holds = units >> 31 == 1
        places = (units[holds] & 0x7FFFFFFF).astype(np.int64)
        if len(places) and int(places.max()) >= len(replacements):
            raise ValueError("a replacement points outside the table")
        starts = np.frombuffer(replacements, np.uint8)[places]
        if (starts >> 6 == 2).any():
            raise ValueError("a replacement begins inside a character")
        inner = units[~holds].astype(np.int64)
        offsets = (inner >> 10) << ((inner & 0x200) >> 6)
        reached = (np.flatnonzero(~holds) ^ offsets) | 0xFF
        if len(reached) and int(reached.max()) >= len(units):
            raise ValueError("a unit that leads outside the trie")
    except (ValueError, struct.error) as error:
        raise CheckpointError(f"{source}: its precompiled_charsmap is damaged: {error}") from None
