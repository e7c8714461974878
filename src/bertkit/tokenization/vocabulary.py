"""What a BERT tokenizer is made of: its tokens, which of them are special, how text is normalized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bertkit.errors import CheckpointError

SPECIAL_TOKENS = ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")
#: Words longer than this become ``[UNK]``. The first release of the original code had 200; every fast tokenizer, and
#: so every model in use today, has 100.
MAX_INPUT_CHARS_PER_WORD = 100


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token found in the text before anything else is done to it, and never split.

    content, id: the token and its number.
    special: whether ``decode(skip_special_tokens=True)`` leaves it out.
    normalized: look for it in the normalized text instead.
    lstrip, rstrip: it takes the white space on that side with it.
    single_word: only where no letter or digit stands beside it.
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
        """Whether finding it is a search for its characters in the raw text."""
        return not (self.normalized or self.lstrip or self.rstrip or self.single_word)


@dataclass(frozen=True)
class Vocabulary:
    """Everything that makes up a tokenizer. The arguments of :class:`~bertkit.tokenization.BertTokenizer`, checked.

    vocab: token to id, ids 0 ... n-1.
    added: tokens that are never split; those whose id is not in ``vocab`` follow it.
    prefix: what tokens that continue a word begin with.
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
        ids = {*self.vocab.values(), *(token.id for token in self.added)}
        known = {*self.vocab, *(token.content for token in self.added)}
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
                f"token that takes its place, for example {next(iter(absent))}={next(iter(known))!r}"
            )

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
            added = {token: added.get(token) or AddedToken(token, self.vocab[token]), **added}
        return tuple(added.values())
