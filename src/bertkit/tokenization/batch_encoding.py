"""What a call of the tokenizer returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from bertkit.errors import InputError
from bertkit.habit_table import remedy
from bertkit.ragged import Ids, Ragged, Segments, gather
from bertkit.tokenization.call_arguments import Request
from bertkit.tokenization.templates import Template

if TYPE_CHECKING:
    from tokenizers import Encoding

#: Rows of numbers by the name of the column.
Columns = dict[str, list[list[int]]]


class CharSpan(NamedTuple):
    """Characters ``text[start:end]``."""

    start: int
    end: int


class TokenSpan(NamedTuple):
    """Tokens ``start ... end - 1`` of a row."""

    start: int
    end: int


#: Rows, and tokens of each, that a notebook shows.
_SHOWN_ROWS, _SHOWN_TOKENS = 10, 200


class BatchEncoding(dict[str, Any]):
    """A dict of ``input_ids``, ``token_type_ids``, ``attention_mask`` and whatever else was asked for.

    Every key is also an attribute, and ``**encoding`` gives the arguments of a model. The methods map tokens to words
    and characters and back. ``row`` is a row of the batch (each window of a long text is one), ``sequence`` is 0 or 1
    for the texts of a pair, and positions count from 0, including special tokens and padding. As in transformers,
    methods that take two positions may be called with one if the batch has a single row.

    Args:
        data: the columns.
        encodings: makes the encodings of the ``tokenizers`` package, one for each row, when first needed.
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
            hint = "" if name.startswith("_") else remedy("encoding.", name, [*self, *dir(type(self))])
            raise AttributeError(f"no column {name!r}{hint}; there are {', '.join(self)}") from None

    def __getitem__(self, key: str | int) -> Any:
        """A column by name; for the number of a row, its encoding from the ``tokenizers`` package."""
        return self.encodings[key] if isinstance(key, int) else super().__getitem__(key)

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, Any]]]:
        # Only the columns are pickled; words and characters can be looked up again where the texts are.
        return type(self), (dict(self),)

    def _repr_html_(self) -> str:
        """What a notebook shows: the pieces of the first rows with their ids."""
        import html

        try:
            shown = self.encodings[:_SHOWN_ROWS]
        except InputError:
            return f"<pre>{html.escape(repr(self))}</pre>"
        box = "display:inline-block;border:1px solid #999;border-radius:3px;margin:1px;padding:0 4px;text-align:center"
        rows = (
            "".join(
                f'<span style="{box}">{html.escape(token)}<br><small>{number}</small></span>'
                for token, number in zip(each.tokens[:_SHOWN_TOKENS], each.ids, strict=False)
            )
            + (f" and {len(each.ids) - _SHOWN_TOKENS:,} more" if len(each.ids) > _SHOWN_TOKENS else "")
            for each in shown
        )
        more = len(self.encodings) - len(shown)
        return "".join(f"<p>{row}</p>" for row in rows) + (f"<p>and {more:,} more rows</p>" if more else "")

    @property
    def data(self) -> dict[str, Any]:
        """The columns as a plain dict."""
        return dict(self)

    @property
    def encodings(self) -> list[Encoding]:
        """One encoding of the ``tokenizers`` package for each row.

        Raises:
            InputError: this result was padded or unpickled, and does not know the texts.
        """
        if self._encodings is None:
            if self._make_encodings is None:
                raise InputError("words and characters are known only in what calling the tokenizer returned")
            self._encodings = self._make_encodings()
        return self._encodings

    def tokens(self, batch_index: int = 0) -> list[str]:
        """Tokens of the row ``batch_index``."""
        return self._row(batch_index).tokens

    def word_ids(self, batch_index: int = 0) -> list[int | None]:
        """The number of each token's word in its text; None for special tokens and padding."""
        return self._row(batch_index).word_ids

    def sequence_ids(self, batch_index: int = 0) -> list[int | None]:
        """0 or 1 for each token, the text it comes from; None for special tokens and padding."""
        return self._row(batch_index).sequence_ids

    def _row(self, row: int) -> Encoding:
        try:
            return self.encodings[row]
        except IndexError:
            raise InputError(f"no row {row}: the batch has {len(self.encodings)}") from None

    def _at(self, row: int, position: int | None) -> tuple[Encoding, int]:
        return (self._row(0), row) if position is None else (self._row(row), position)

    def _token_at(self, row: int, token: int | None) -> tuple[Encoding, int]:
        encoding, token = self._at(row, token)
        return encoding, token + len(encoding) if token < 0 else token

    def token_to_sequence(self, batch_or_token_index: int, token_index: int | None = None) -> int | None:
        """The text (0 or 1) a token comes from."""
        encoding, token = self._token_at(batch_or_token_index, token_index)
        return encoding.token_to_sequence(token)

    def token_to_word(self, batch_or_token_index: int, token_index: int | None = None) -> int | None:
        """The word of a token."""
        encoding, token = self._token_at(batch_or_token_index, token_index)
        return encoding.token_to_word(token)

    def token_to_chars(self, batch_or_token_index: int, token_index: int | None = None) -> CharSpan | None:
        """The characters of a token in its text; None for special tokens."""
        encoding, token = self._token_at(batch_or_token_index, token_index)
        found = encoding.token_to_chars(token)
        return None if found is None else CharSpan(*found)

    def char_to_token(
        self, batch_or_char_index: int, char_index: int | None = None, sequence_index: int = 0
    ) -> int | None:
        """The token of a character; None for white space and truncated text."""
        encoding, char = self._at(batch_or_char_index, char_index)
        return encoding.char_to_token(char, sequence_index)

    def char_to_word(
        self, batch_or_char_index: int, char_index: int | None = None, sequence_index: int = 0
    ) -> int | None:
        """The word of a character."""
        encoding, char = self._at(batch_or_char_index, char_index)
        return encoding.char_to_word(char, sequence_index)

    def word_to_tokens(
        self, batch_or_word_index: int, word_index: int | None = None, sequence_index: int = 0
    ) -> TokenSpan | None:
        """The tokens of a word."""
        encoding, word = self._at(batch_or_word_index, word_index)
        found = encoding.word_to_tokens(word, sequence_index)
        return None if found is None else TokenSpan(*found)

    def word_to_chars(
        self, batch_or_word_index: int, word_index: int | None = None, sequence_index: int = 0
    ) -> CharSpan | None:
        """The characters of a word."""
        encoding, word = self._at(batch_or_word_index, word_index)
        found = encoding.word_to_chars(word, sequence_index)
        return None if found is None else CharSpan(*found)

    @property
    def n_sequences(self) -> int | None:
        """Texts of each row, 1 or 2; None for what does not know its texts."""
        return self.encodings[0].n_sequences if self._make_encodings is not None else None

    @property
    def is_fast(self) -> bool:
        """Whether it knows words and characters."""
        return self._make_encodings is not None

    def to(self, device: Any, *, non_blocking: bool = False) -> Self:
        """Move the tensors to a torch device, in place."""
        for key, value in self.items():
            if hasattr(value, "to"):
                self[key] = value.to(device, non_blocking=non_blocking)
        return self

    def take_first_row(self) -> None:
        """Leave the columns of the only row, in place: what a call with a single text returns."""
        for key, rows in self.items():
            self[key] = rows[0] if isinstance(rows[0], list) else rows

    def convert_to_tensors(self, tensor_type: str | None) -> Self:
        """Turn each column into an int64 array ``(B, S)``, in place.

        Args:
            tensor_type: ``"pt"`` for torch, ``"np"`` for numpy; None keeps lists.

        Raises:
            InputError: another kind, or rows of different lengths.
        """
        if tensor_type is None:
            return self
        if tensor_type not in ("pt", "np"):
            hint = remedy("return_tensors", str(tensor_type), ())
            raise InputError(f"return_tensors must be 'pt', 'np' or None, got {tensor_type!r}{hint}")
        for key, value in self.items():
            if isinstance(value, np.ndarray):
                array = value
            elif value and isinstance(value[0], list) and len({len(row) for row in value}) > 1:
                lengths = [len(row) for row in value]
                raise InputError(
                    f"{key} cannot be one array: its rows have {min(lengths)} to {max(lengths)} tokens; "
                    "pass padding=True (and truncation=True if they are long)"
                )
            else:
                array = np.asarray(value, np.int64)
            self[key] = array if tensor_type == "np" else import_module("torch").from_numpy(array)
        return self


def pad_columns(columns: Columns, length: int, *, fill: Mapping[str, int], left: bool) -> Columns:
    """Pad the rows of each column to ``length`` with its value in ``fill``; columns without one are not padded."""
    padded: Columns = {}
    for key, rows in columns.items():
        if key not in fill:
            padded[key] = list(rows)
            continue
        more = [[fill[key]] * (length - len(row)) for row in rows]
        padded[key] = [[*extra, *row] if left else [*row, *extra] for row, extra in zip(rows, more, strict=True)]
    return padded


def columns_of(encodings: Sequence[Encoding], *, paired: bool, asked: Request, template: Template) -> Columns:
    """The columns for rows from the ``tokenizers`` package."""
    typed = paired and (template.segments or template.shown)
    return {
        "input_ids": [row.ids for row in encodings],
        "token_type_ids": [_types(row, asked.add_special_tokens) if typed else [0] * len(row) for row in encodings],
        "attention_mask": [row.attention_mask for row in encodings],
        "special_tokens_mask": [row.special_tokens_mask for row in encodings],
    }


def _types(row: Encoding, special: bool) -> list[int]:
    """Segments of a pair: 1 behind the first [SEP], up to the second; wrong in the engine's windows."""
    types = [sequence or 0 for sequence in row.sequence_ids]
    if special:
        marks = zip(row.special_tokens_mask, row.attention_mask, strict=True)
        types[[at for at, (mark, real) in enumerate(marks) if mark and real][-1]] = 1
    return types


def columns_of_ragged(ragged: Ragged, names: Sequence[str], *, special: bool, template: Template) -> Columns:
    """``input_ids``, and what is in ``names``, for rows from the fast path."""
    spans, special = list(pairwise(ragged.boundaries.tolist())), special and template.ends

    def rows(values: Ids | Segments) -> list[list[int]]:
        listed = values.tolist()
        return [listed[start:end] for start, end in spans]

    columns: Columns = {"input_ids": rows(ragged.ids)}
    if "token_type_ids" in names:
        types = ragged.token_type_ids
        if template.shown and ragged.seconds is not None:
            starts = ragged.seconds + (template.between - 1 if special else 0)
            types = np.zeros_like(types)
            types[gather(starts, ragged.boundaries[1:] - starts)] = 1
        columns["token_type_ids"] = rows(types)
    if "attention_mask" in names:
        columns["attention_mask"] = [[1] * (end - start) for start, end in spans]
    if "special_tokens_mask" in names:
        marks = np.zeros(len(ragged.ids), np.int8)
        if special and len(ragged):
            if template.begins:
                marks[ragged.boundaries[:-1]] = 1
            marks[ragged.boundaries[1:] - 1] = 1
            if ragged.seconds is not None:
                for place in range(template.between):
                    marks[ragged.seconds - 1 + place] = 1
        columns["special_tokens_mask"] = rows(marks)
    return columns
