"""Compare an extended tokenizer with the one that a model was trained with.

``bertkit vocab CORPUS --extend BASE`` keeps the ids of all tokens and puts new words in the places of ``[unusedN]``,
then after the last id. A model continues with such a tokenizer once each new word has a row of weights
(:func:`bertkit.model.resize.resize_vocabulary`), initialised with the mean of the rows of its pieces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from bertkit.errors import DataError
from bertkit.tokenization import AddedToken, BertTokenizer, WordpieceTokenizer

_unused = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True, slots=True)
class NewWords:
    """Tokens of an extended tokenizer that its base lacks.

    base_size, size: tokens of the base and of the extended tokenizer.
    pieces: for the id of each new token, in order, the ids of the pieces that the base splits it into, at least one.
    num_in_unused_places: new tokens that replace an ``[unusedN]`` of the base; the others follow its last token.
    num_unknown: new tokens whose only piece is ``[UNK]``.
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
            f"{len(self):,} new words, {self.num_in_unused_places:,} in the places of [unusedN] and "
            f"{len(self) - self.num_in_unused_places:,} after the last token; each is initialised with the mean of the "
            f"rows of its pieces{unknown}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The record in ``metrics.json``."""
        return {
            "count": len(self),
            "in_unused_places": self.num_in_unused_places,
            "after_the_last_token": len(self) - self.num_in_unused_places,
            "began_as": "mean of the rows of their pieces",
            "began_as_unk": self.num_unknown,
        }


def find_new_words(base: BertTokenizer, extended: BertTokenizer) -> NewWords:
    """Check that a tokenizer extends another, and find how the other splits each new word.

    It does if both treat text alike, every token of ``base`` has the same id in ``extended``, except for ``[unusedN]``
    that became words, and all other tokens follow. A text without new words then has the same ids in both.

    Args:
        base: the tokenizer that a checkpoint was trained with.
        extended: the one that a token store was prepared with.

    Raises:
        DataError: it is not an extension; names the first difference.
    """
    before, after = (tokenizer.convert_ids_to_tokens(range(len(tokenizer))) for tokenizer in (base, extended))
    known = set(before)
    _check_settings(base, extended, known)
    for number, (old, new) in enumerate(zip_longest(before, after)):
        may_change = old is None or _unused.fullmatch(old)
        if new != old and (new is None or new in known or not may_change):
            raise DataError(f"id {number:,} is {_name(old)} in the checkpoint's tokenizer, {_name(new)} in the store's")
    ids = [number for number, token in enumerate(after) if token not in known]
    split = _pieces(base, [after[number] for number in ids])
    return NewWords(
        base_size=len(before),
        size=len(after),
        pieces=dict(zip(ids, split, strict=True)),
        num_in_unused_places=sum(number < len(before) for number in ids),
        num_unknown=split.count((base.unk_token_id,)),
    )


def _name(token: str | None) -> str:
    return "no token" if token is None else repr(token)


def _check_settings(base: BertTokenizer, extended: BertTokenizer, known: set[str]) -> None:
    ours, theirs = _settings(base), _settings(extended)
    for name, was in ours.items():
        if theirs[name] != was:
            raise DataError(f"{name} is {was!r} in the checkpoint's tokenizer, {theirs[name]!r} in the store's")
    whole, also_whole = _never_split(base), _never_split(extended)
    # New tokens may be never-split ones; tokens of the base must not become so.
    for token in sorted(whole.keys() | (also_whole.keys() & known)):
        if whole.get(token) != also_whole.get(token):
            raise DataError(
                f"how {token!r} is found in a text is {whole.get(token)} in the checkpoint's tokenizer, "
                f"{also_whole.get(token)} in the store's"
            )


def _settings(tokenizer: BertTokenizer) -> dict[str, Any]:
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


def _never_split(tokenizer: BertTokenizer) -> dict[str, AddedToken]:
    """The tokens that are never split; their ids are compared elsewhere."""
    return {token.content: replace(token, id=0) for token in tokenizer._vocabulary.never_split}


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
