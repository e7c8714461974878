"""What a call of the tokenizer returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from tokenizers import Encoding

from bertkit.errors import InputError
from bertkit.ragged import Ragged
from bertkit.tokenization.ragged import Template


class CharSpan(NamedTuple):
    """Characters ``text[start:end]``."""

    start: int
    end: int


class TokenSpan(NamedTuple):
    """Tokens ``start ... end - 1`` of a row."""

    start: int
    end: int


class BatchEncoding(dict[str, Any]):
    """A dict of ``input_ids``, ``token_type_ids``, ``attention_mask`` and what else was asked for.

    Every key is an attribute too, and ``**encoding`` are the arguments of a model. The methods tell which token stands
    for which word or character; ``row`` is the row of the batch (windows of one long text are rows of their own),
    ``sequence`` 0 or 1 the text of a pair, and positions count from 0, special tokens and padding included. As in
    transformers, methods of two positions may be called with one when the batch has one row.

    Args:
        data: the columns.
        encodings: makes the encodings of the ``tokenizers`` package, one a row, when first needed.
    """

    def __init__(
        self, data: Mapping[str, Any] | None = None, encodings: Callable[[], list[Encoding]] | None = None
    ) -> None:
        super().__init__(data or {})
        self._make_encodings = encodings
        self._encodings: list[Encoding] | None = None

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no {name!r} here; there are {', '.join(self)}") from None

    def __getitem__(self, key: Any) -> Any:
        """A column by its name; with a row's number, its encoding from the ``tokenizers`` package."""
        return self.encodings[key] if isinstance(key, int) else super().__getitem__(key)

    def __reduce__(self) -> tuple[Any, ...]:
        # Only the columns travel: what belongs to words and characters can be asked for again where the texts are.
        return type(self), (dict(self),)

    @property
    def data(self) -> dict[str, Any]:
        """The columns as a plain dict."""
        return dict(self)

    @property
    def encodings(self) -> list[Encoding]:
        """One encoding of the ``tokenizers`` package for each row.

        Raises:
            InputError: this result was made by padding or by unpickling, and knows nothing of the texts.
        """
        if self._encodings is None:
            if self._make_encodings is None:
                raise InputError("words and characters are known only in what calling the tokenizer returned")
            self._encodings = self._make_encodings()
        return self._encodings

    def tokens(self, row: int = 0) -> list[str]:
        """Tokens of a row."""
        return self._row(row).tokens

    def word_ids(self, row: int = 0) -> list[int | None]:
        """For each token the number of its word in its text; None for special tokens and padding."""
        return self._row(row).word_ids

    def sequence_ids(self, row: int = 0) -> list[int | None]:
        """For each token 0 or 1, the text it comes from; None for special tokens and padding."""
        return self._row(row).sequence_ids

    def _row(self, row: int) -> Encoding:
        try:
            return self.encodings[row]
        except IndexError:
            raise InputError(f"there is no row {row}; the batch has {len(self.encodings)}") from None

    def _at(self, row: int, position: int | None) -> tuple[Encoding, int]:
        encoding, position = (self._row(0), row) if position is None else (self._row(row), position)
        return encoding, position + len(encoding) if position < 0 else position

    def token_to_sequence(self, row: int, token: int | None = None) -> int | None:
        """The text (0 or 1) a token comes from."""
        encoding, token = self._at(row, token)
        return encoding.token_to_sequence(token)

    def token_to_word(self, row: int, token: int | None = None) -> int | None:
        """The word a token belongs to."""
        encoding, token = self._at(row, token)
        return encoding.token_to_word(token)

    def token_to_chars(self, row: int, token: int | None = None) -> CharSpan | None:
        """The characters of its text that a token stands for; None for special tokens."""
        encoding, token = self._at(row, token)
        found = encoding.token_to_chars(token)
        return None if found is None else CharSpan(*found)

    def char_to_token(self, row: int, char: int | None = None, sequence: int = 0) -> int | None:
        """The token that stands for a character; None for white space and what was cut off."""
        encoding, char = (self._row(0), row) if char is None else (self._row(row), char)
        return encoding.char_to_token(char, sequence)

    def char_to_word(self, row: int, char: int | None = None, sequence: int = 0) -> int | None:
        """The word that a character belongs to."""
        encoding, char = (self._row(0), row) if char is None else (self._row(row), char)
        return encoding.char_to_word(char, sequence)

    def word_to_tokens(self, row: int, word: int | None = None, sequence: int = 0) -> TokenSpan | None:
        """The tokens of a word."""
        encoding, word = (self._row(0), row) if word is None else (self._row(row), word)
        found = encoding.word_to_tokens(word, sequence)
        return None if found is None else TokenSpan(*found)

    def word_to_chars(self, row: int, word: int | None = None, sequence: int = 0) -> CharSpan | None:
        """The characters of a word."""
        encoding, word = (self._row(0), row) if word is None else (self._row(row), word)
        found = encoding.word_to_chars(word, sequence)
        return None if found is None else CharSpan(*found)

    def to(self, device: Any) -> Self:
        """Move the tensors to a torch device, in place."""
        for key, value in self.items():
            if hasattr(value, "to"):
                self[key] = value.to(device)
        return self

    def convert_to_tensors(self, kind: str | None) -> Self:
        """Make each column an array ``(B, S)`` of int64, in place.

        Args:
            kind: ``"pt"`` for torch, ``"np"`` for numpy; None leaves lists.

        Raises:
            InputError: another kind, or rows of different lengths.
        """
        if kind is None:
            return self
        if kind not in ("pt", "np"):
            raise InputError(f"return_tensors must be 'pt', 'np' or None, got {kind!r}")
        for key, value in self.items():
            if isinstance(value, np.ndarray):
                array = value
            elif value and isinstance(value[0], list) and len({len(row) for row in value}) > 1:
                lengths = [len(row) for row in value]
                raise InputError(
                    f"{key} cannot be one array: rows have {min(lengths)} to {max(lengths)} tokens; "
                    "pass padding=True (and truncation=True if they are long)"
                )
            else:
                array = np.asarray(value, np.int64)
            self[key] = array if kind == "np" else import_module("torch").from_numpy(array)
        return self


def pad_columns(
    columns: Mapping[str, list[Any]], length: int, *, fill: Mapping[str, Any], left: bool
) -> dict[str, list[Any]]:
    """Rows of each column made ``length`` long with what ``fill`` has for the column; longer ones stay.

    A column that ``fill`` does not have is not padded.
    """
    padded: dict[str, list[Any]] = {}
    for key, rows in columns.items():
        if key not in fill:
            padded[key] = list(rows)
            continue
        more = [[fill[key]] * (length - len(row)) for row in rows]
        padded[key] = [[*extra, *row] if left else [*row, *extra] for row, extra in zip(rows, more, strict=True)]
    return padded


def columns_of(
    encodings: Sequence[Encoding], *, paired: bool, special: bool, template: Template
) -> dict[str, list[Any]]:
    """All columns there can be, of rows from the ``tokenizers`` package, with or without special tokens."""
    typed = paired and template.segments
    return {
        "input_ids": [row.ids for row in encodings],
        "token_type_ids": [_types(row, special=special) if typed else [0] * len(row) for row in encodings],
        "attention_mask": [row.attention_mask for row in encodings],
        "special_tokens_mask": [row.special_tokens_mask for row in encodings],
        "offset_mapping": [row.offsets for row in encodings],
        "length": [len(row) for row in encodings],
    }


def _types(row: Encoding, *, special: bool) -> list[int]:
    """Segments of a pair: 1 behind the first [SEP], up to the second. The windows of a row do not have them right."""
    types = [sequence or 0 for sequence in row.sequence_ids]
    if special:
        marks = zip(row.special_tokens_mask, row.attention_mask, strict=True)
        types[[at for at, (mark, real) in enumerate(marks) if mark and real][-1]] = 1
    return types


def columns_of_ragged(ragged: Ragged, *, special: bool, template: Template) -> dict[str, list[Any]]:
    """All columns that need no offsets, as lists."""
    ids, types = ragged.ids.tolist(), ragged.token_type_ids.tolist()
    spans = list(pairwise(ragged.boundaries.tolist()))
    marks = np.zeros(len(ids), np.int8)
    if special and spans:
        marks[ragged.boundaries[:-1]] = 1
        marks[ragged.boundaries[1:] - 1] = 1
        if ragged.seconds is not None:
            for place in range(template.between):
                marks[ragged.seconds - 1 + place] = 1
    masks = marks.tolist()
    return {
        "input_ids": [ids[start:end] for start, end in spans],
        "token_type_ids": [types[start:end] for start, end in spans],
        "attention_mask": [[1] * (end - start) for start, end in spans],
        "special_tokens_mask": [masks[start:end] for start, end in spans],
        "length": [end - start for start, end in spans],
    }
