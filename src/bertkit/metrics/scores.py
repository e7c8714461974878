"""Scores of predictions against references, in numpy alone: the metrics of GLUE and of sentiment data.

Every metric takes ``(predictions, references)``, two sequences of one length n >= 1, and returns a Python float.
Values equal scikit-learn's and scipy's wherever those define one. Degenerate input, where a formula divides by zero:

===========================================  =====================================================================
F1 without any positive, predicted or real    0.0, as scikit-learn
Matthews with one label only on either side   0.0, as scikit-learn
Pearson, Spearman of a constant, or n = 1     nan, as scipy for a constant (scipy refuses n = 1)
===========================================  =====================================================================

A nan is not JSON, and it would drop a dead run out of a mean over seeds. :func:`bertkit.tasks.score` therefore reports
0.0 in its place, and :func:`bertkit.tasks.diagnose` says in words that the predictions are constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertkit.errors import ConfigError, InputError, did_you_mean

Array = npt.NDArray[Any]


def accuracy(predictions: npt.ArrayLike, references: npt.ArrayLike) -> float:
    """Share of rows whose label is right."""
    predicted, right = _pair(predictions, references)
    return float(np.mean(predicted == right))


def f1(predictions: npt.ArrayLike, references: npt.ArrayLike, positive: Any = 1) -> float:
    """F1 of one class: ``2 tp / (2 tp + fp + fn)``; the metric of MRPC and QQP in GLUE."""
    predicted, right = _pair(predictions, references)
    if (right.dtype.kind in "US") != isinstance(positive, str):
        raise InputError(
            f"positive is {positive!r}, but the labels are like {right.tolist()[0]!r}; name one of the labels"
        )
    predicted, right = predicted == positive, right == positive
    marked = np.count_nonzero(predicted) + np.count_nonzero(right)
    return float(2.0 * np.count_nonzero(predicted & right) / marked) if marked else 0.0


def macro_f1(predictions: npt.ArrayLike, references: npt.ArrayLike) -> float:
    """Mean of the F1 of every label that occurs in either sequence, each label with the same weight."""
    predicted, right = _pair(predictions, references)
    labels, codes = np.unique(np.concatenate([predicted, right]), return_inverse=True)
    same = codes[: len(predicted)][predicted == right]
    both = np.bincount(same, minlength=len(labels))
    return float(np.mean(2.0 * both / np.bincount(codes, minlength=len(labels))))


def matthews(predictions: npt.ArrayLike, references: npt.ArrayLike) -> float:
    """Matthews correlation for two or more labels (Gorodkin 2004, the R_K statistic), from -1 to 1; CoLA's metric."""
    predicted, right = _pair(predictions, references)
    _, codes = np.unique(np.concatenate([predicted, right]), return_inverse=True)
    size = int(codes.max()) + 1
    # Python integers: products of counts leave int64 at three billion rows, and floats would lose the exact zero.
    of_prediction = np.bincount(codes[: len(predicted)], minlength=size).tolist()
    of_reference = np.bincount(codes[len(predicted) :], minlength=size).tolist()
    total = len(predicted)
    correct = int(np.sum(predicted == right))
    covariance = correct * total - sum(p * r for p, r in zip(of_prediction, of_reference, strict=True))
    spread_predicted = total * total - sum(p * p for p in of_prediction)
    spread_right = total * total - sum(r * r for r in of_reference)
    if spread_predicted == 0 or spread_right == 0:
        return 0.0
    return float(covariance / math.sqrt(spread_predicted * spread_right))


def pearson(predictions: npt.ArrayLike, references: npt.ArrayLike) -> float:
    """Linear correlation of two sequences of numbers, from -1 to 1; nan when one of them is constant."""
    return _correlation(*_numbers(predictions, references))


def spearman(predictions: npt.ArrayLike, references: npt.ArrayLike) -> float:
    """Pearson correlation of the ranks; equal values share the mean of their ranks. nan when one is constant."""
    predicted, right = _numbers(predictions, references)
    return _correlation(ranks(predicted), ranks(right))


def ranks(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Rank of each of n numbers, counted from 1; equal numbers get the mean of the ranks they fill."""
    _, codes, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: npt.NDArray[np.float64] = last - (counts - 1) / 2.0
    return mean[codes]


def confusion_matrix(
    predictions: npt.ArrayLike, references: npt.ArrayLike, num_labels: int | None = None
) -> npt.NDArray[np.int64]:
    """How often each label number was taken for each: ``(C, C)``, row = right, column = predicted, as scikit-learn."""
    predicted, right = _pair(predictions, references)
    both = np.concatenate([predicted, right])
    if both.dtype.kind not in "iub":
        raise InputError(f"confusion_matrix needs label numbers, got {both.dtype}; map names through label2id first")
    both = both.astype(np.int64)
    size = int(both.max()) + 1 if num_labels is None else num_labels
    if both.min() < 0 or both.max() >= size:
        raise InputError(f"label numbers must lie in 0 ... {size - 1}, got {both.min()} ... {both.max()}")
    cells = both[len(predicted) :] * size + both[: len(predicted)]
    return np.bincount(cells, minlength=size * size).reshape(size, size).astype(np.int64)


#: Name, as in ``TextTask.metrics`` and metrics.json -> function. In all of them higher is better.
METRICS: Mapping[str, Callable[[npt.ArrayLike, npt.ArrayLike], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def check_metrics(task: str, metrics: Sequence[str], main_metric: str, known: Collection[str]) -> None:
    """ConfigError unless all metrics of ``task`` are known, and ``main_metric`` is one of them."""
    for metric in (*metrics, main_metric):
        if metric not in known:
            raise ConfigError(f"task {task}: unknown metric {metric!r}{did_you_mean(metric, known)}")
    if main_metric not in metrics:
        raise ConfigError(f"task {task}: main_metric {main_metric!r} is not one of {tuple(metrics)}")


def _correlation(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> float:
    # Asked of the values, not of their variance: rounding gives the variance of a constant a tiny value above zero.
    if bool(np.all(x == x[0])) or bool(np.all(y == y[0])):
        return math.nan
    return float(np.clip(np.dot(_direction(x), _direction(y)), -1.0, 1.0))


def _direction(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Deviations from the mean as a vector of length 1; scaled before squaring, so that nothing over- or underflows."""
    centred = x - x.mean()
    scaled = centred / np.abs(centred).max()
    unit: npt.NDArray[np.float64] = scaled / np.linalg.norm(scaled)
    return unit


def _numbers(
    predictions: npt.ArrayLike, references: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    predicted, right = _pair(predictions, references)
    for name, values in (("predictions", predicted), ("references", right)):
        if values.dtype.kind not in "iubf":
            row = next((row for row, value in enumerate(values.tolist()) if not _is_number(value)), 0)
            raise InputError(f"{name} must be numbers, got text: {name}[{row}] is {values.tolist()[row]!r:.40}")
    return predicted.astype(np.float64), right.astype(np.float64)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def as_values(name: str, values: npt.ArrayLike) -> Array:
    """Numbers or texts as an array; an InputError for any other value, and for one that is not finite."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} cannot be scored: {error}") from None
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = np.argwhere(~np.isfinite(array))[0].tolist()
        raise InputError(f"{name}{row} is {array[tuple(row)]}: a value that is not finite cannot be scored")
    if array.dtype.kind not in "iubfUS":
        wrong = next((v for v in array.ravel().tolist() if not isinstance(v, (int, float, str))), array.dtype)
        raise InputError(f"{name} must be numbers or text, got {wrong!r:.60}")
    return array


def _pair(predictions: npt.ArrayLike, references: npt.ArrayLike) -> tuple[Array, Array]:
    predicted, right = as_values("predictions", predictions), as_values("references", references)
    for name, values in (("predictions", predicted), ("references", right)):
        if values.ndim != 1:
            raise InputError(f"{name} must have one axis, got shape {values.shape}; take the argmax of logits first")
    if len(predicted) != len(right):
        raise InputError(f"{len(predicted)} predictions but {len(right)} references")
    if len(predicted) == 0:
        raise InputError("nothing to score: no predictions")
    if (predicted.dtype.kind in "US") != (right.dtype.kind in "US"):
        raise InputError(f"predictions are {predicted.dtype}, references {right.dtype}: map names to numbers first")
    return predicted, right
