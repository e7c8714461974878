"""The data of a tokenizer: its tokens, which of them are special, how text is normalized."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, TypedDict, get_args

import numpy as np

from bertkit.errors import CheckpointError, shorten
from bertkit.system.untrusted_files import half_pair_at

SPECIAL_TOKENS = ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")
#: Words longer than this become ``[UNK]``. The first release of the original code had 200; every fast tokenizer, and
#: so every model in use today, has 100.
MAX_INPUT_CHARS_PER_WORD = 100

SpecialName = Literal["unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
SPECIAL_NAMES: tuple[SpecialName, ...] = get_args(SpecialName)
#: The special tokens of a family by their public names, some of which have two.
Names = Mapping[str, SpecialName]
PLAIN: Names = {name: name for name in SPECIAL_NAMES}
BEGIN_AND_END: Names = {"bos_token": "cls_token", "eos_token": "sep_token", **PLAIN}
#: Of T5, which has neither a token before a text nor a mask.
END_ONLY: Names = {"eos_token": "sep_token", "unk_token": "unk_token", "pad_token": "pad_token"}
#: Where a unigram tokenizer cuts text: at all white space; at blanks after the table of replacements, as SentencePiece
#: does; or at blanks after composing characters (NFC), which is what transformers 5 makes of DeBERTa's tokenizer.
Splits = Literal["at white space", "at blanks", "at blanks of NFC"]
#: How SentencePiece writes a blank.
BLANK = "▁"
#: Every public name.
PUBLIC_NAMES = tuple(BEGIN_AND_END)


class SpecialTokens(TypedDict, total=False):
    """Special tokens by name."""

    unk_token: str
    sep_token: str
    pad_token: str
    cls_token: str
    mask_token: str


#: BERT's.
BRACKETED: SpecialTokens = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that is recognized in the raw text and never split.

    content, id: the token and its number.
    special: whether ``decode(skip_special_tokens=True)`` omits it.
    normalized: whether to search the normalized text instead.
    lstrip, rstrip: whether it includes the white space on that side.
    single_word: whether it must not be next to a letter or digit.
    """

    content: str
    id: int
    special: bool = True
    normalized: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False


def check_characters(tokens: Collection[str], source: str) -> None:
    """Refuse tokens with a lone surrogate, which neither UTF-8 nor the engine can represent; names the first."""
    if half_pair_at("".join(tokens)) is not None:
        bad = next(token for token in tokens if half_pair_at(token) is not None)
        raise CheckpointError(
            f"{source}: the token {bad[:80]!r} has half of a character that takes two; no text holds it"
        )


@dataclass(frozen=True, kw_only=True)
class TokenTable:
    """The common part of all vocabularies: tokens, their ids, and which of them are special.

    added: tokens that are never split; ids of those not in ``vocab`` follow it.
    names: which special tokens there are; the fields of the others say nothing.
    blank_before_mask: the mask includes the white space before it, as in most published files.
    """

    vocab: Mapping[str, int]
    added: tuple[AddedToken, ...] = ()
    unk_token: str = "<unk>"
    sep_token: str = "</s>"
    pad_token: str = "<pad>"
    cls_token: str = "<s>"
    mask_token: str = "<mask>"
    names: Names = field(default_factory=lambda: BEGIN_AND_END)
    blank_before_mask: bool = True
    source: str = field(default="the vocabulary", compare=False)

    def check_tokens(self) -> None:
        """Check ids (0 ... n-1, those of added tokens last), that the special tokens exist, and that all are UTF-8."""
        ids = {*self.vocab.values(), *(token.id for token in self.added)}
        known = {*self.vocab, *(token.content for token in self.added)}
        check_characters(known, self.source)
        if len(ids) != len(known) or ids != set(range(len(ids))):
            missing = next(number for number in range(len(ids) + 1) if number not in ids)
            raise CheckpointError(
                f"{self.source} must number its {len(known):,} tokens 0 ... {len(known) - 1:,}, each number once; "
                f"{missing:,} is the first that no token has"
            )
        absent = {name: token for name, token in self.special_tokens.items() if token not in known}
        if absent:
            what = ", ".join(f"{name}={token[:80]!r}" for name, token in absent.items())
            raise CheckpointError(
                f"{self.source} ({len(known):,} tokens) has no {what}; add the token to the vocabulary, or name the "
                f"token that takes its place, for example {next(iter(absent))}={next(iter(known))[:80]!r}"
            )
        following = len(self.vocab)
        for token in sorted(self.never_split, key=lambda token: token.id):
            number = self.vocab.get(token.content, following)
            if number != token.id:
                raise CheckpointError(
                    f"{self.source}: the added token {token.content[:80]!r} should have the id {token.id}, but has "
                    f"{number} by the order of the vocabulary"
                )
            following = max(following, number + 1)

    def check_unknown(self) -> None:
        """Check that the model itself knows the unknown token, which an added token would not be enough for."""
        if self.unk_token not in self.vocab:
            raise CheckpointError(
                f"{self.source}: unk_token={self.unk_token!r} must be in the vocabulary, not an added token"
            )

    def id_of(self, token: str) -> int:
        """Id of a special or added token."""
        return next((each.id for each in self.never_split if each.content == token), -1)

    @property
    def special_tokens(self) -> dict[str, str]:
        """The special tokens by their public names."""
        return {public: getattr(self, name) for public, name in self.names.items()}

    @property
    def never_split(self) -> tuple[AddedToken, ...]:
        """The special tokens and the added ones."""
        added = {token.content: token for token in self.added}
        for token in reversed(self.special_tokens.values()):
            added = {token: added.get(token) or self.whole(token), **added}
        return tuple(added.values())

    def whole(self, token: str) -> AddedToken:
        """How a special token is recognized by default."""
        return AddedToken(token, self.vocab[token], lstrip=self.blank_before_mask and token == self.mask_token)


@dataclass(frozen=True, kw_only=True)
class Vocabulary(TokenTable):
    """Everything that makes up BERT's tokenizer: the arguments of :class:`~bertkit.tokenization.BertTokenizer`."""

    do_lower_case: bool = True
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    unk_token: str = "[UNK]"
    sep_token: str = "[SEP]"
    pad_token: str = "[PAD]"
    cls_token: str = "[CLS]"
    mask_token: str = "[MASK]"
    names: Names = field(default_factory=lambda: PLAIN)
    blank_before_mask: bool = False
    max_input_chars_per_word: int = MAX_INPUT_CHARS_PER_WORD
    prefix: str = "##"

    def __post_init__(self) -> None:
        self.check_tokens()
        self.check_unknown()
        check_characters([self.prefix], self.source)


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
