"""The words that the tokenizer of a token store adds to that of the checkpoint that pre-training starts from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from bertkit.data.store.token_store import TokenStore
from bertkit.errors import BertkitError, DataError, counted
from bertkit.system.console import say
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.bert_tokenizer import BertTokenizer
from bertkit.tokenization.digest import tokenizer_digest
from bertkit.tokenization.reference import WordpieceTokenizer

_unused = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True, slots=True)
class NewWords:
    """Tokens of an extended tokenizer that its base lacks.

    ``bertkit vocab CORPUS --extend BASE`` keeps the ids of all tokens and puts new words in the places of
    ``[unusedN]``, then after the last id. A model continues with such a tokenizer once each new word has a row of
    weights, initialized with the mean of the rows of its pieces: ``pieces``, at least one, by the id of the word.
    """

    base_size: int
    size: int
    pieces: Mapping[int, Sequence[int]]
    num_in_unused_places: int
    num_unknown: int

    def __len__(self) -> int:
        return len(self.pieces)

    def __str__(self) -> str:
        unknown = f" ({self.num_unknown:,} of them [UNK])" if self.num_unknown else ""
        return (
            f"{counted(len(self), 'new word')}, {self.num_in_unused_places:,} in the places of [unusedN] and "
            f"{len(self) - self.num_in_unused_places:,} after the last token; each is initialized with the mean of the "
            f"rows of its pieces{unknown}"
        )

    def to_dict(self) -> dict[str, int | str]:
        """The record in ``metrics.json``."""
        return {
            "count": len(self),
            "in_unused_places": self.num_in_unused_places,
            "after_the_last_token": len(self) - self.num_in_unused_places,
            "began_as": "mean of the rows of their pieces",
            "began_as_unk": self.num_unknown,
        }


def new_words_of(path: Path, store: TokenStore) -> NewWords | None:
    """What the store's tokenizer adds to the checkpoint's; None if they are equal or cannot be compared."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except BertkitError as error:
        say(f"only the sizes of the tokenizers of {path} and of the token store are compared: {error}")
        return None
    if tokenizer_digest(tokenizer) == store.manifest.tokenizer.sha256:
        return None
    extended = store.tokenizer()
    again = f"Prepare the corpus with it: bertkit prepare CORPUS --tokenizer {path} --out STORE"
    if not isinstance(tokenizer, BertTokenizer) or not isinstance(extended, BertTokenizer):  # no others are extended
        raise DataError(
            f"the tokenizer of the token store is not that of {path}, so ids would mean other words (the checkpoint "
            f"has {tokenizer!r}, the store {extended!r}). {again}"
        )
    try:
        return find_new_words(tokenizer, extended) or None
    except DataError as error:
        raise DataError(
            f"the tokenizer of the token store is neither that of {path} nor an extension of it, so ids would mean "
            f"other words ({error}). {again}; or first add words to it: bertkit vocab CORPUS --extend {path} --out "
            "TOKENIZER"
        ) from None


def find_new_words(base: BertTokenizer, extended: BertTokenizer) -> NewWords:
    """Check that a tokenizer extends another, and find how the other splits each new word.

    It does if both treat text alike, every token of ``base`` has the same id in ``extended``, except for ``[unusedN]``
    that became words, and all other tokens follow. A text without new words then has the same ids in both.
    """
    before, after = (tokenizer.convert_ids_to_tokens(range(len(tokenizer))) for tokenizer in (base, extended))
    known = set(before)
    _check_settings(base, extended, known)
    for number, (old, new) in enumerate(zip_longest(before, after)):
        may_change = old is None or _unused.fullmatch(old)
        if new != old and (new is None or new in known or not may_change):
            was, now = ("no token" if token is None else repr(token) for token in (old, new))
            raise DataError(f"id {number:,} is {was} in the checkpoint's tokenizer, {now} in the store's")
    ids = [number for number, token in enumerate(after) if token not in known]
    split = _pieces(base, [after[number] for number in ids])
    return NewWords(
        base_size=len(before),
        size=len(after),
        pieces=dict(zip(ids, split, strict=True)),
        num_in_unused_places=sum(number < len(before) for number in ids),
        num_unknown=split.count((base.unk_token_id,)),
    )


def _check_settings(base: BertTokenizer, extended: BertTokenizer, known: set[str]) -> None:
    ours, theirs = _settings(base), _settings(extended)
    for name, was in ours.items():
        if theirs[name] != was:
            raise DataError(f"{name} is {was!r} in the checkpoint's tokenizer, {theirs[name]!r} in the store's")
    # The ids of tokens that are never split are compared elsewhere.
    whole, also_whole = (
        {token.content: token._replace(id=0) for token in tokenizer._vocabulary.never_split}
        for tokenizer in (base, extended)
    )
    # New tokens may be never-split ones; tokens of the base must not become so.
    for token in sorted(whole.keys() | (also_whole.keys() & known)):
        if whole.get(token) != also_whole.get(token):
            raise DataError(
                f"how {token!r} is found in a text is {whole.get(token)} in the checkpoint's tokenizer, "
                f"{also_whole.get(token)} in the store's"
            )


def _settings(tokenizer: BertTokenizer) -> dict[str, bool | int | str | None]:
    """What determines, besides the tokens, how a text is split."""
    vocabulary = tokenizer._vocabulary
    strips = vocabulary.strip_accents
    return {
        "do_lower_case": vocabulary.do_lower_case,
        "strip_accents": vocabulary.do_lower_case if strips is None else strips,
        "tokenize_chinese_chars": vocabulary.tokenize_chinese_chars,
        "max_input_chars_per_word": vocabulary.max_input_chars_per_word,
        "prefix": vocabulary.prefix,
        **vocabulary.special_tokens,
    }


def _pieces(base: BertTokenizer, tokens: Sequence[str]) -> list[tuple[int, ...]]:
    """The ids that ``base`` splits tokens of another vocabulary into: ``##ology`` as the end of a word."""
    if not tokens:
        return []
    vocabulary = base._vocabulary
    prefix, unknown = vocabulary.prefix, base.unk_token_id
    endings = {
        token.removeprefix(prefix): number for token, number in vocabulary.vocab.items() if token.startswith(prefix)
    }
    continuing = WordpieceTokenizer(endings, max_input_chars_per_word=vocabulary.max_input_chars_per_word, prefix="")
    whole = base.encode_ragged(tokens, add_special_tokens=False)
    found: list[tuple[int, ...]] = []
    for token, ids in zip(tokens, whole, strict=True):
        if prefix and token.startswith(prefix):
            split = [endings.get(piece.token, unknown) for piece in continuing.pieces(token.removeprefix(prefix))]
        else:
            split = ids.tolist()
        found.append(tuple(split) or (unknown,))
    return found
