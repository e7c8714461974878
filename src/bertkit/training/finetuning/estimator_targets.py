"""What scikit-learn's users give to fit beside the texts: labels, numbers, weights of rows. Checked, row by row."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets

from bertkit.errors import InputError, counted, shorten
from bertkit.tasks.reading.listed_texts import KEEP, frame_columns, is_nothing, listed

#: How labels were given: one a row, an indicator matrix ``(n, C)``, or a list of labels for each row.
LabelForm = Literal["one", "indicators", "lists"]
Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float64]

#: Of a regressor: numbers beyond it have squares that float32 does not hold.
LARGEST = 1e18


@dataclass(frozen=True, slots=True)
class Targets:
    """Labels of n rows: the form they came in, the sorted classes, and the numbers of each row's labels.

    numbers: int64 ``(n,)`` for one label a row, else float32 ``(n, C)`` of 1 and 0.
    """

    form: LabelForm
    classes: Array
    numbers: Array

    def of_rows(self) -> list[int | tuple[int, ...] | None]:
        """The number of each row's label, or the numbers of its labels."""
        if self.form == "one":
            return [int(number) for number in self.numbers]
        return [tuple(np.flatnonzero(row).tolist()) for row in self.numbers]

    def select(self, rows: npt.NDArray[np.intp]) -> Targets:
        """Of these rows; a class that none of them has is left out where each has one label."""
        if self.form != "one":
            return Targets(self.form, self.classes, self.numbers[rows])
        there, numbers = np.unique(self.numbers[rows], return_inverse=True)
        return Targets(self.form, self.classes[there], numbers.astype(np.int64))


def read_targets(y: npt.ArrayLike | None, num_rows: int, who: str) -> Targets:
    """Labels as they are given to ``fit``.

    Raises:
        InputError: none, or not one for each row; a missing label, labels of several kinds, numbers that are scores.
    """
    if (lists := _label_lists(y)) is not None:
        return _of_lists(lists, num_rows)
    if (matrix := _indicators(y)) is not None:
        _check_length(matrix.shape[:1], num_rows)
        names = frame_columns(y)
        classes = np.arange(matrix.shape[1]) if names is None else np.array(names)
        if len(set(classes.tolist())) < len(classes):
            raise InputError(f"y has two columns of the same name: {shorten(names or [])}; rename one")
        return Targets("indicators", classes, matrix.astype(np.float32))
    labels = one_label_each(y, num_rows, who)
    classes, numbers = np.unique(labels, return_inverse=True)
    return Targets("one", classes, numbers.astype(np.int64))


def one_label_each(y: npt.ArrayLike | None, num_rows: int, who: str) -> Array:
    """Labels, one for each row, ``(n,)``; see :func:`read_targets`."""
    labels = _as_array(y, who)
    if labels.ndim == 2 and len(labels) == num_rows:
        raise InputError(
            f"y must have one label for each of the {counted(num_rows, 'text')}, or 1 and 0 for each label; got shape "
            f"{labels.shape}. For several labels of different kinds: sklearn.multioutput.MultiOutputClassifier({who}())"
        )
    _check_length(labels.shape, num_rows)
    _check_values(y)
    try:
        check_classification_targets(labels)
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from None
    return labels


def read_scores(y: npt.ArrayLike | None, num_rows: int, who: str) -> Floats:
    """The numbers that a regressor learns, float64 ``(n,)``; InputError for what is none, or not finite."""
    scores = _as_array(y, who)
    if scores.ndim == 2:
        raise InputError(
            f"y must have one number for each text, got shape {scores.shape}; for several numbers use "
            f"sklearn.multioutput.MultiOutputRegressor({who}())"
        )
    _check_length(scores.shape, num_rows, "number")
    found: Floats = np.empty(num_rows, np.float64)
    for number, value in enumerate(_values_of(y)):
        if is_nothing(value):
            raise InputError(f"y has no number in row {number} (counted from 0), but {value!r}; {KEEP}")
        try:
            found[number] = float(value)
        except (TypeError, ValueError):
            raise InputError(
                f"y must hold numbers; row {number} (counted from 0) is {value!r:.40}. For labels use BertClassifier"
            ) from None
        if not math.isfinite(found[number]):
            raise InputError(f"y has {value!r} in row {number} (counted from 0), which is not finite; {KEEP}")
        if abs(found[number]) > LARGEST:
            raise InputError(f"y has {value!r} in row {number} (counted from 0), beyond {LARGEST:g}: use another unit")
    return found


def _as_array(y: npt.ArrayLike | None, who: str) -> Array:
    """Targets as an array; of a matrix with one column that column, with scikit-learn's warning."""
    if y is None:
        raise InputError(f"{who} requires y to be passed, but the target y is None")
    array = np.asarray(listed(y, "y") if hasattr(y, "to_pylist") else y)
    if array.ndim != 2 or array.shape[1] != 1:
        return array
    warnings.warn(
        "A column-vector y was passed when a 1d array was expected; give (n,) instead of (n, 1), as y.ravel() is",
        DataConversionWarning,
        stacklevel=4,
    )
    return array[:, 0]


def read_weights(sample_weight: npt.ArrayLike | None, num_rows: int, name: str = "sample_weight") -> Floats | None:
    """Weights of the rows, float64 ``(n,)``, one or more above 0; None: all count the same. Messages say ``name``."""
    if sample_weight is None:
        return None
    try:
        weights: Floats = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must hold one number for each text, got {sample_weight!r:.60}") from None
    if not weights.ndim:
        weights = np.full(num_rows, float(weights))
    if weights.shape != (num_rows,):
        raise InputError(
            f"{name} must have one number for each of the {counted(num_rows, 'text')}, got shape {weights.shape}"
        )
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise InputError(
            f"{name} is {weights[wrong[0]]:g} in row {wrong[0]} (counted from 0); give finite numbers from 0 "
            "on, 0 for rows that are to be left out"
        )
    if not weights.any():
        raise InputError(f"{name} is zero in every row, so that nothing is left to learn from")
    return weights


def _label_lists(y: npt.ArrayLike | None) -> list[list[object]] | None:
    """The labels of each row, where rows are lists of texts, or of different lengths; None for other labels."""
    if y is None or frame_columns(y) is not None or getattr(y, "ndim", 1) != 1 or hasattr(y, "toarray"):
        return None
    rows = listed(y, "y")
    if not rows or not all(isinstance(row, list | tuple | set | frozenset | np.ndarray) for row in rows):
        return None
    found = [row.tolist() if isinstance(row, np.ndarray) else list(row) for row in rows]
    texts = any(isinstance(value, str) for row in found for value in row)
    return found if texts or len({len(row) for row in found}) > 1 else None


def _of_lists(rows: Sequence[Sequence[object]], num_rows: int) -> Targets:
    _check_length((len(rows),), num_rows)
    for number, row in enumerate(rows):
        for value in row:
            if is_nothing(value):
                raise InputError(f"y has an empty label in row {number} (counted from 0): {value!r}; leave it out")
    kinds = {type(value) for row in rows for value in row}
    if len(kinds) > 1:
        names = sorted(kind.__name__ for kind in kinds)
        raise InputError(f"the labels in the lists of y must be of one kind, got {' and '.join(names)}")
    classes = np.array(sorted({value for row in rows for value in row}))  # type: ignore[type-var]
    place = {value: number for number, value in enumerate(classes.tolist())}
    matrix = np.zeros((len(rows), len(classes)), np.float32)
    for number, row in enumerate(rows):
        matrix[number, [place[value] for value in row]] = 1
    return Targets("lists", classes, matrix)


def _indicators(y: npt.ArrayLike | None) -> Array | None:
    """A matrix of 1 and 0 with two columns or more; None for anything else."""
    if y is None:
        return None
    if hasattr(y, "toarray"):
        y = y.toarray()
    if hasattr(y, "to_pandas") and frame_columns(y) is not None:  # Arrow and polars
        y = y.to_pandas()
    try:
        matrix = np.asarray(y)
    except ValueError:  # rows of several lengths
        return None
    if matrix.ndim != 2 or matrix.shape[1] < 2 or matrix.dtype.kind not in "biuf":
        return None
    return matrix.astype(np.int64) if bool(np.isin(matrix, (0, 1)).all()) else None


def _check_length(shape: tuple[int, ...], num_rows: int, what: str = "label") -> None:
    if not shape or shape[0] != num_rows or len(shape) > 1:
        raise InputError(
            f"y must have one {what} for each of the {counted(num_rows, 'text')}, got shape {tuple(shape)}"
        )


def _values_of(y: npt.ArrayLike | None) -> list[Any]:
    return [row[0] if isinstance(row, list) and len(row) == 1 else row for row in listed(y, "y")]


def _check_values(y: npt.ArrayLike | None) -> None:
    """InputError for a row without a label, or with one of another kind than the first, which numpy would convert."""
    values = _values_of(y)
    for number, value in enumerate(values):
        if is_nothing(value) or (isinstance(value, float | np.floating) and not math.isfinite(value)):
            raise InputError(f"y has no label in row {number} (counted from 0), but {value!r}; {KEEP}")
        if any(isinstance(value, kind) != isinstance(values[0], kind) for kind in (str, bool | np.bool_)):
            raise InputError(
                f"y must hold texts, numbers, or truth values throughout; row {number} is {value!r:.40}, "
                f"row 0 is {values[0]!r:.40}"
            )
