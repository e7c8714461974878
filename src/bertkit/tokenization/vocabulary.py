"""The data of a tokenizer: its tokens, which of them are special, how text is normalized."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import count
from operator import eq
from typing import Literal, NamedTuple, TypedDict, get_args

from bertkit.errors import CheckpointError
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


class AddedToken(NamedTuple):
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

    @property
    def ids(self) -> Mapping[str, int]:
        """Every token, the added ones too, and its id."""
        behind = {token.content: token.id for token in self.added if token.content not in self.vocab}
        return {**self.vocab, **behind} if behind else self.vocab

    def check_tokens(self) -> None:
        """Check ids (0 ... n-1, those of added tokens last), that the special tokens exist, and that all are UTF-8."""
        known = self.ids
        check_characters(known, self.source)
        own = (known[token.content] == token.id for token in self.added)
        if not all(map(eq, known.values(), count())) or not all(own):  # most number their tokens in order
            ids = {*self.vocab.values(), *(token.id for token in self.added)}
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
