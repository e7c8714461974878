"""The data of a tokenizer: its tokens, which of them are special, how text is normalized."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from bertkit.errors import CheckpointError, shorten
from bertkit.tokenization.formats.sentencepiece import check_charsmap

SPECIAL_TOKENS = ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")
#: Words longer than this become ``[UNK]``. The first release of the original code had 200; every fast tokenizer, and
#: so every model in use today, has 100.
MAX_INPUT_CHARS_PER_WORD = 100


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that is recognised in the raw text and never split.

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

    @property
    def is_plain(self) -> bool:
        """Whether it can be found by a plain search in the raw text."""
        return not (self.normalized or self.lstrip or self.rstrip or self.single_word)


def check_characters(tokens: Iterable[str], source: str) -> None:
    """Refuse tokens that UTF-8 cannot represent; the engine cannot either.

    Raises:
        CheckpointError: names ``source`` and the first such token.
    """
    for token in tokens:
        try:
            token.encode()
        except UnicodeEncodeError:
            raise CheckpointError(
                f"{source}: the token {token[:80]!r} has half of a character that takes two; no text holds it"
            ) from None


class TokenTable:
    """The common part of all vocabularies: tokens, their ids, and which of them are special.

    vocab: token to id.
    added: tokens that are never split; ids of those not in ``vocab`` follow it.
    source: its name in error messages.
    """

    vocab: Mapping[str, int]
    added: tuple[AddedToken, ...]
    unk_token: str
    sep_token: str
    pad_token: str
    cls_token: str
    mask_token: str
    source: str

    def check_tokens(self) -> None:
        """Check that ids are 0 ... n-1, that the special tokens exist, and that UTF-8 can represent all tokens.

        Raises:
            CheckpointError: the first number that no token has; the special tokens that are missing; a token with half
                of a character that takes two (a lone surrogate), which no text has.
        """
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
            what = ", ".join(f"{name}={token!r}" for name, token in absent.items())
            raise CheckpointError(
                f"{self.source} ({len(known):,} tokens) has no {what}; add the token to the vocabulary, or name the "
                f"token that takes its place, for example {next(iter(absent))}={next(iter(known))[:80]!r}"
            )

    def check_unknown(self) -> None:
        """Check that the unknown token is in the vocabulary of the model itself.

        Raises:
            CheckpointError: it is only an added token, which the model does not know.
        """
        if self.unk_token not in self.vocab:
            raise CheckpointError(f"{self.source}: unk_token={self.unk_token!r} must be in it, not an added token")

    def id_of(self, token: str) -> int:
        """Id of a special or added token."""
        return next((each.id for each in self.never_split if each.content == token), -1)

    @property
    def special_tokens(self) -> dict[str, str]:
        """``unk_token``, ``sep_token``, ``pad_token``, ``cls_token`` and ``mask_token`` by these names."""
        names = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
        return {name: getattr(self, name) for name in names}

    @property
    def never_split(self) -> tuple[AddedToken, ...]:
        """The special tokens and the added ones."""
        added = {token.content: token for token in self.added}
        for token in reversed(self.special_tokens.values()):
            added = {token: added.get(token) or self.whole(token), **added}
        return tuple(added.values())

    def whole(self, token: str) -> AddedToken:
        """How a special token is recognised by default."""
        return AddedToken(token, self.vocab[token])


@dataclass(frozen=True)
class Vocabulary(TokenTable):
    """Everything that makes up BERT's tokenizer: the arguments of :class:`~bertkit.tokenization.BertTokenizer`.

    vocab: token to id, ids 0 ... n-1.
    added: tokens that are never split; ids of those not in ``vocab`` follow it.
    prefix: marks tokens that continue a word.
    """

    vocab: Mapping[str, int]
    added: tuple[AddedToken, ...] = ()
    do_lower_case: bool = True
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool = True
    unk_token: str = "[UNK]"
    sep_token: str = "[SEP]"
    pad_token: str = "[PAD]"
    cls_token: str = "[CLS]"
    mask_token: str = "[MASK]"
    max_input_chars_per_word: int = MAX_INPUT_CHARS_PER_WORD
    prefix: str = "##"
    source: str = field(default="the vocabulary", compare=False)

    def __post_init__(self) -> None:
        self.check_tokens()
        self.check_unknown()
        check_characters([self.prefix], self.source)


@dataclass(frozen=True)
class BpeVocabulary(TokenTable):
    """Everything that makes up RoBERTa's tokenizer: the arguments of :class:`~bertkit.tokenization.RobertaTokenizer`.

    vocab: token to id; a token is written in the 256 characters that stand for bytes.
    merges: pairs of tokens to join, the most important first.
    add_prefix_space: prepend a space to a text, so that its first word is tokenized like the others.
    trim_offsets: exclude white space from the offsets of tokens.
    """

    vocab: Mapping[str, int]
    merges: tuple[tuple[str, str], ...]
    added: tuple[AddedToken, ...] = ()
    add_prefix_space: bool = False
    trim_offsets: bool = True
    unk_token: str = "<unk>"
    sep_token: str = "</s>"
    pad_token: str = "<pad>"
    cls_token: str = "<s>"
    mask_token: str = "<mask>"
    source: str = field(default="the vocabulary", compare=False)
    merges_source: str = field(default="the merges", compare=False)

    def __post_init__(self) -> None:
        self.check_tokens()
        bytes_without = [char for char in BYTE_CHARS if char not in self.vocab]
        if bytes_without:
            raise CheckpointError(
                f"{self.source} ({len(self.vocab):,} tokens) has no token for {len(bytes_without)} of the 256 bytes "
                f"({shorten(bytes_without)}): text with them would be lost"
            )
        for number, (left, right) in enumerate(self.merges):
            absent = [token for token in (left, right, left + right) if token not in self.vocab]
            if absent:
                raise CheckpointError(
                    f"{self.merges_source}: merge {number:,} joins {left!r:.80} and {right!r:.80}, but "
                    f"{absent[0]!r:.80} is not in {self.source}; the two files do not belong together"
                )

    @property
    def special_tokens(self) -> dict[str, str]:
        """The common ones, and their aliases ``bos_token`` and ``eos_token``."""
        return {"bos_token": self.cls_token, "eos_token": self.sep_token, **super().special_tokens}

    def whole(self, token: str) -> AddedToken:
        """The mask includes the white space before it, as in every published file: ``a <mask>`` is two tokens."""
        return replace(super().whole(token), lstrip=token == self.mask_token)


@dataclass(frozen=True)
class UnigramVocabulary(TokenTable):
    """Everything that makes up a unigram tokenizer: ALBERT's, CamemBERT's, XLM-R's.

    pieces: every token with its score (log probability), in the order of ids.
    charsmap: SentencePiece's compiled table of replacements; None or empty: none.
    replace_quotes, keep_accents, do_lower_case: earlier steps of normalization, in this order.
    add_prefix_space: begin every word with ``▁``.
    model: the SentencePiece file of the pieces, which is written back; None if they are from elsewhere.
    """

    pieces: tuple[tuple[str, float], ...]
    charsmap: bytes | None = None
    added: tuple[AddedToken, ...] = ()
    replace_quotes: bool = False
    keep_accents: bool = True
    do_lower_case: bool = False
    add_prefix_space: bool = True
    unk_token: str = "<unk>"
    sep_token: str = "</s>"
    pad_token: str = "<pad>"
    cls_token: str = "<s>"
    mask_token: str = "<mask>"
    model: bytes | None = field(default=None, compare=False, repr=False)
    source: str = field(default="the vocabulary", compare=False)
    vocab: Mapping[str, int] = field(init=False, compare=False, repr=False)

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

    @property
    def special_tokens(self) -> dict[str, str]:
        """The common ones, and their aliases ``bos_token`` and ``eos_token``."""
        return {"bos_token": self.cls_token, "eos_token": self.sep_token, **super().special_tokens}

    def whole(self, token: str) -> AddedToken:
        """The mask includes the white space before it, as in every published file."""
        return replace(super().whole(token), lstrip=token == self.mask_token)


def _byte_chars() -> str:
    """The character for each byte: itself if it is visible, otherwise the next one from U+0100."""
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in visible else next(hidden)) for byte in range(256))


#: Radford et al. 2019 (GPT-2), ``encoder.py``: bytes as characters that are neither white space nor control.
BYTE_CHARS = _byte_chars()
