"""Texts and labels that are in memory, as scikit-learn's users have them: lists, arrays, columns, frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError, shorten
from bertkit.tasks.reading.bad_rows import is_missing

Texts = Sequence[str] | Sequence[Sequence[str]] | npt.NDArray[np.generic] | Iterable[str]
KEEP = "leave such rows out, of X and of y"


def texts_and_pairs(X: Texts) -> tuple[list[str], list[str] | None]:
    """Texts and second texts (None for single ones).

    Raises:
        InputError: X has no rows, or something else than strings, or than pairs of strings.
    """
    rows = listed(X)
    if not rows:
        raise InputError("X is empty: found 0 sample(s), a minimum of 1 is required")
    for number, row in enumerate(rows):
        if is_nothing(row) and not isinstance(row, str):
            raise InputError(f"X has no text in row {number} (counted from 0), but {row!r}; {KEEP}")
    single = isinstance(rows[0], str)
    for number, row in enumerate(rows):
        parts = list(row) if isinstance(row, list | tuple | np.ndarray) else []
        pair = len(parts) == 2 and all(isinstance(part, str) for part in parts)
        if not (isinstance(row, str) if single else pair):
            first = f" and row 0 {rows[0]!r:.40}" if number else ""
            raise InputError(
                f"X must hold strings, or pairs of strings throughout; row {number} is {row!r:.80}{first}{_advice(row)}"
            )
    if single:
        return [str(row) for row in rows], None
    return [str(row[0]) for row in rows], [str(row[1]) for row in rows]


def check_not_empty(texts: Sequence[str], pairs: Sequence[str] | None) -> None:
    """Raise InputError for a text without a character."""
    for number, text in enumerate(zip(texts, pairs or texts, strict=True)):
        if any(map(is_missing, text)):
            raise InputError(f"X has an empty text in row {number} (counted from 0); {KEEP}")


def listed(values: Any, name: str = "X") -> list[Any]:
    """The values of a list, another iterable, an array, or a column of pandas, polars or Arrow.

    Of a frame with one column it is that column, of one with two columns of texts the pairs. Messages call the values
    ``name``.

    Raises:
        InputError: one text, a number, a dictionary, a sparse matrix, or a frame of which a column has to be picked.
    """
    what = " of texts" if name == "X" else ""
    if isinstance(values, str | bytes) or (isinstance(values, np.ndarray) and not values.ndim):
        raise InputError(f"{name} must be a list{what}, got one string: put it in a list")
    if isinstance(values, set | frozenset):
        raise InputError(f"{name} is a set, which has no order; give a list")
    if isinstance(values, Mapping):
        pick = f"{name}[{next(iter(values), 'text')!r}]"
        raise InputError(f"{name} must be a list{what}, got a dictionary of {shorten(values)}; pick one value: {pick}")
    if hasattr(values, "toarray"):
        raise InputError(f"{name} is a sparse matrix{_advice(0)}")
    if not isinstance(values, Iterable) and not hasattr(values, "column_names"):
        raise InputError(f"{name} must be a list{what}, got {values!r:.80}")
    if (names := _columns_of(values)) is not None:
        return _rows_of_frame(values, names, name)
    if hasattr(values, "to_pylist"):  # Arrow, whose to_numpy() refuses texts in chunks
        return list(values.to_pylist())
    if hasattr(values, "to_numpy"):
        values = np.asarray(values.to_numpy(), dtype=object)
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    return list(values.tolist() if isinstance(values, np.ndarray) else values)


def is_nothing(value: object) -> bool:
    """Whether a value is missing: None, NaN, an empty text, or what pandas writes for one."""
    return is_missing(value) or type(value).__name__ in ("NAType", "NaTType")


def frame_columns(values: object) -> list[str] | None:
    """The names of a frame's columns; None for what is no frame."""
    names = _columns_of(values)
    return None if names is None else [str(name) for name in names]


def _columns_of(values: Any) -> list[Any] | None:
    names = getattr(values, "column_names", None)
    names = getattr(values, "columns", None) if names is None else names
    return None if names is None or callable(names) else list(names)


def _rows_of_frame(frame: Any, names: Sequence[Any], what: str) -> list[Any]:
    kind = f"{what} is a {type(frame).__name__} with the columns {shorten(map(str, names), limit=8)}"
    if twice := next((name for number, name in enumerate(names) if name in names[:number]), None):
        raise InputError(f"{kind}; two have the name {str(twice)!r}: rename one, then pick a column")
    columns = {name: _column(frame, name) for name in names}
    texts = {
        name: sum(len(value) for value in column if isinstance(value, str)) / max(1, len(column))
        for name, column in columns.items()
        if all(isinstance(value, str) or is_nothing(value) for value in column)
    }
    if len(names) == 1:
        return columns[names[0]]
    if len(names) == 2 and len(texts) == 2:
        return [list(pair) for pair in zip(*columns.values(), strict=True)]
    if not texts:
        raise InputError(f"{kind}, none of which holds texts{_advice(0)}")
    best = max(texts, key=lambda name: texts[name])
    pick = f'{what}["{best}"]' if isinstance(best, str) else f"{what}[{best!r}]"
    raise InputError(
        f"{kind}; pick the column of texts: {pick}. To use the others too, give BertVectorizer that column in a "
        f"ColumnTransformer"
    )


def _column(frame: Any, name: Any) -> list[Any]:
    column = frame[name]
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)


def _advice(row: object) -> str:
    """What to do about a row that is no text, where that is plain."""
    if isinstance(row, Mapping):
        return f": pick a value of each, as in [row[{next(iter(row), 'text')!r}] for row in X]"
    if isinstance(row, bytes):
        return ": decode it, as in [row.decode() for row in X]"
    first = row[0] if isinstance(row, list | tuple | np.ndarray) and len(row) else row
    if isinstance(first, int | float | np.number):
        return ": numbers, where the model reads the texts themselves; leave out the step that makes numbers of them"
    return ""
