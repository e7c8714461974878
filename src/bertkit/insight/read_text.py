"""A text, or a pair, as a model reads it: its tokens, and the words that they are pieces of. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bertkit.errors import InputError, LongTextError, TextError, did_you_mean, shorten
from bertkit.ragged import Flags, Ints
from bertkit.tasks.pieces import stripped
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Which text of a pair is cut.
Cut = Literal["longest_first", "only_second"]


@dataclass(frozen=True, slots=True)
class Word:
    """A word as the tokenizer sees words: ``text[start:end]`` of the first or the ``second`` text, and its tokens."""

    text: str
    start: int
    end: int
    second: bool
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReadText:
    """The tokens of a text or a pair.

    ids, types: int64 ``(S,)``, the tokens and their segments.
    parts: 0 or 1, the text that each token is of; None: of neither.
    spans: where it stands there.
    """

    ids: Ints
    types: Ints
    parts: Sequence[int | None]
    spans: Sequence[tuple[int, int]]
    words: Sequence[Word]
    truncated: bool

    @property
    def special(self) -> Flags:
        """The tokens that belong to no text, bool ``(S,)``."""
        return np.array([part is None for part in self.parts])

    @classmethod
    def of(
        cls,
        tokenizer: PreTrainedTokenizer,
        text: str,
        second: str | None,
        limit: int,
        cut: Cut | None,
    ) -> ReadText:
        """Read a text.

        limit, cut: most tokens, and how a text of more is cut; None: it is refused.

        Raises:
            TextError: a text that is too long (then a LongTextError), or has no word.
        """
        found = tokenizer(text, second, return_offsets_mapping=True)
        size = len(found["input_ids"])
        if size > limit and cut is None:
            raise LongTextError(
                f"the text has {size:,} tokens, special tokens included; the limit is {limit:,}. Shorten it, or pass "
                "truncation=True (on the command line: --truncate) to cut it",
                size,
                limit,
            )
        if size > limit:
            found = tokenizer(text, second, truncation=cut, max_length=limit, return_offsets_mapping=True)
        texts, parts = (text, second or ""), found.sequence_ids(0)
        spans = [
            stripped(texts[part], *span) if part is not None else (0, 0)
            for part, span in zip(parts, found["offset_mapping"], strict=True)
        ]
        groups: dict[tuple[int, int], list[int]] = {}
        for token, (part, number) in enumerate(zip(parts, found.word_ids(0), strict=True)):
            if part is not None:
                groups.setdefault((part, -1 - token if number is None else number), []).append(token)
        words = []
        for (part, _), tokens in groups.items():
            start, end = spans[tokens[0]][0], spans[tokens[-1]][1]
            words.append(Word(texts[part][start:end], start, end, part == 1, tuple(tokens)))
        if not words:
            raise TextError(f"the text has no word to explain: {text!r:.60}")
        ids = np.array(found["input_ids"], dtype=np.int64)
        types = np.array(found.get("token_type_ids", [0] * len(ids)), dtype=np.int64)
        return cls(ids, types, parts, spans, words, size > limit)

    def place_of(self, word: int | str) -> int:
        """The place of a word that is given as it is written, or by its number from 1 on; InputError: there is none."""
        same = [place for place, each in enumerate(self.words) if each.text == word]
        if len(same) > 1:
            places = ", ".join(str(place + 1) for place in same)
            raise InputError(
                f"{word!r} is in the text {len(same)} times, as the words {places}; give one of the numbers"
            )
        if same:
            return same[0]
        count = len(self.words)
        if isinstance(word, str) and not word.isdecimal():
            raise InputError(
                f"the text has no word {word!r:.40}{did_you_mean(word, [each.text for each in self.words])}; its words "
                f"are {shorten((each.text for each in self.words), limit=12)}"
            )
        if not 1 <= int(word) <= count:
            raise InputError(f"there is no word {word}: the text has {count} words, counted from 1")
        return int(word) - 1


def number_of(label: str, names: Mapping[int, str]) -> int:
    """The number of a label; InputError for one that the model does not have."""
    numbers = {name: number for number, name in names.items()}
    if label not in numbers:
        near = did_you_mean(label, numbers)
        raise InputError(f"the model has no label {label!r:.80}{near}; it has {shorten(numbers, limit=12)}")
    return numbers[label]
