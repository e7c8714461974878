"""Scores of rows that carry any number of labels each, in numpy alone; equal to scikit-learn's.

Every function takes ``(predictions, references)``, 0 or 1 for each of n rows and C labels, and returns a Python float.
A label that occurs neither in the references nor in the predictions is left out of a mean over labels (scikit-learn's
``zero_division=nan``), so that perfect predictions score 1; where no label is left an F1 is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError
from bertkit.metrics.scores import as_values

Array = npt.NDArray[Any]


def micro_f1(predictions: npt.ArrayLike, references: npt.ArrayLike) -> float:
    """F1 over all decisions ``(n, C)`` together: ``2 tp / (2 tp + fp + fn)``, frequent labels weigh more."""
    predicted, right = _pair(predictions, references)
    marked = int(predicted.sum()) + int(right.sum())
    return 2.0 * int((predicted & right).sum()) / marked if marked else 0.0


def macro_f1(predictions: npt.ArrayLike, references: npt.ArrayLike) -> float:
    """Mean of the F1 of the labels that occur on either side, each with the same weight."""
    values = f1_of_labels(predictions, references)
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else 0.0


def f1_of_labels(predictions: npt.ArrayLike, references: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """F1 of each label, float64 ``(C,)``, nan for one that occurs on neither side."""
    predicted, right = _pair(predictions, references)
    found = 2.0 * (predicted & right).sum(axis=0)
    marked = predicted.sum(axis=0) + right.sum(axis=0)
    values: npt.NDArray[np.float64] = np.where(marked > 0, found / np.maximum(marked, 1), np.nan)
    return values


def exact_match(predictions: npt.ArrayLike, references: npt.ArrayLike) -> float:
    """Share of rows all of whose C decisions are right."""
    predicted, right = _pair(predictions, references)
    return float((predicted == right).all(axis=1).mean())


def label_accuracy(predictions: npt.ArrayLike, references: npt.ArrayLike) -> float:
    """Share of the n x C decisions that are right: 1 - the Hamming loss."""
    predicted, right = _pair(predictions, references)
    return float((predicted == right).mean())


#: Name, as in ``TextTask.metrics`` of a task with several labels per row -> function. In all of them higher is better.
MULTILABEL_METRICS: Mapping[str, Callable[[npt.ArrayLike, npt.ArrayLike], float]] = {
    "micro_f1": micro_f1,
    "macro_f1": macro_f1,
    "exact_match": exact_match,
    "label_accuracy": label_accuracy,
}


def _pair(predictions: npt.ArrayLike, references: npt.ArrayLike) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    arrays = []
    for name, values in (("predictions", predictions), ("references", references)):
        array = as_values(name, values)
        if array.ndim != 2 or array.dtype.kind not in "iubf":
            raise InputError(f"{name} must be 0 or 1 of shape (rows, labels), got {array.dtype} of shape {array.shape}")
        if (others := array[~np.isin(array, (0, 1))]).size:
            raise InputError(f"{name} must be 0 or 1, got {others[0]}")
        arrays.append(array.astype(np.bool_))
    predicted, right = arrays
    if predicted.shape != right.shape:
        raise InputError(f"predictions have shape {predicted.shape}, references {right.shape}; both must be the same")
    if not predicted.size:
        raise InputError("nothing to score: no predictions")
    return predicted, right
