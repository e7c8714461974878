"""Calibrated probabilities, and thresholds chosen for a metric: fitted on labelled rows.

*Temperature* (Guo et al. 2017, "On Calibration of Modern Neural Networks"): logits are divided by one number, which
keeps the order of the labels and matches confidence to accuracy. *Thresholds*: the probability from
which a label is given, chosen to maximize a metric.

A fit looks better on its own rows than on new ones; :func:`cross_fit` evaluates it on rows it was not fitted on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError
from bertkit.metrics.probabilities import sigmoid, softmax

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
ScalarT = TypeVar("ScalarT", bound=np.generic)

#: The range that is searched. A temperature outside it means that the input is not logits.
LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 0.05, 20.0
#: Smaller differences of log loss are ignored.
FLAT = 1e-9
#: Parts that :func:`cross_fit` cuts the rows into.
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Bins:
    """Rows by confidence in bins of equal width, none empty: count, mean probability, share that was right ``(M,)``."""

    count: npt.NDArray[np.int64]
    confidence: Floats
    accuracy: Floats

    @property
    def error(self) -> float:
        """Expected calibration error: mean distance of confidence and accuracy, weighted by rows; 0 is best."""
        return float((np.abs(self.confidence - self.accuracy) * self.count).sum() / self.count.sum())


def confidences(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Confidence and correctness of probabilities ``(n, C)``, the input of :func:`calibration_bins`.

    With right label numbers ``(n,)`` the most probable label of a row counts, with 0 and 1 ``(n, C)`` all do.
    """
    shares, right = np.asarray(probabilities, dtype=np.float64), np.asarray(labels)
    if right.ndim == 2:
        return shares.ravel(), right.ravel().astype(np.bool_)
    return shares.max(axis=1), shares.argmax(axis=1) == right


def calibration_bins(confidence: npt.ArrayLike, correct: npt.ArrayLike, num_bins: int = 15) -> Bins:
    """Rows ``(n,)`` in ``num_bins`` bins of equal width from 0 to 1; a value on an edge belongs to the bin below it."""
    sure, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if not len(sure) or len(sure) != len(right) or sure.min() < 0 or sure.max() > 1:
        raise InputError(
            "confidence and correct must have the same length, at least 1, and confidence must be from 0 to 1"
        )
    place = np.clip(np.ceil(sure * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    count = np.bincount(place, minlength=num_bins)
    there = count > 0
    means = [np.bincount(place, weights=values, minlength=num_bins)[there] / count[there] for values in (sure, right)]
    return Bins(count[there], *means)


def calibration_error(probabilities: npt.ArrayLike, labels: npt.ArrayLike, num_bins: int = 15) -> float:
    """Expected calibration error; arguments as of :func:`confidences` and :func:`calibration_bins`."""
    return calibration_bins(*confidences(probabilities, labels), num_bins=num_bins).error


def probabilities_at(logits: npt.ArrayLike, temperature: float, *, several: bool = False) -> Floats:
    """Probabilities ``(n, C)`` of logits ``(n, C)`` at a temperature; ``several``: labels do not exclude each other."""
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    return (sigmoid(scaled) if several else softmax(scaled)).astype(np.float64)


def log_losses(logits: npt.ArrayLike, labels: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Negative log-likelihood of each row's true label ``(n,)``; of several, the mean binary cross-entropy."""
    x, right = np.asarray(logits, dtype=np.float64), np.asarray(labels)
    if right.ndim == 2:
        return np.asarray((np.logaddexp(0.0, x) - x * right).mean(axis=1))
    shifted = x - x.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(x)), right])


def log_loss(logits: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Mean of :func:`log_losses`."""
    return float(log_losses(logits, labels).mean())


def fit_temperature(logits: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The temperature that minimizes the log loss of logits ``(n, C)``, by right labels ``(n,)`` or 0 and 1 ``(n, C)``.

    It is over 1 if the model was overconfident, and 1 if none makes a difference or every row is right. It
    needs scipy, which bertkit-lite does without. InputError: no rows, or logits that are not finite.
    """
    from scipy.optimize import minimize_scalar

    x, right = np.asarray(logits, dtype=np.float64), np.asarray(labels)
    if not len(x) or not np.isfinite(x).all():
        raise InputError("a temperature is fitted on one row or more of finite logits")
    # Where every row is right, the lowest temperature is the best, however few rows there are: all would be certain.
    if (((x > 0) == (right > 0)) if right.ndim == 2 else x.argmax(axis=1) == right).all():
        return 1.0
    # The loss is convex in 1 / temperature, and so has one minimum in its logarithm too.
    bounds = (math.log(LOWEST_TEMPERATURE), math.log(HIGHEST_TEMPERATURE))
    found = minimize_scalar(
        lambda power: log_loss(x / math.exp(power), right), bounds=bounds, method="bounded", options={"xatol": 1e-6}
    )
    return 1.0 if log_loss(x, right) - found.fun < FLAT else math.exp(found.x)


def best_threshold(scores: npt.ArrayLike, right: npt.ArrayLike, metric: str = "f1") -> float:
    """The threshold that maximizes ``f1``, ``accuracy`` or ``matthews`` of yes/no decisions: yes from this score on.

    All thresholds between neighbouring probabilities ``(n,)`` are tried; of equally good ones the nearest to 0.5 wins.
    It may be just above 1, to say no to a score of 1; it is 0.5 where all rows are right or none is.
    """
    values, yes = np.asarray(scores, dtype=np.float64), np.asarray(right).astype(np.bool_)
    if metric not in _METRICS:
        raise InputError(f"thresholds can be chosen for {', '.join(_METRICS)}, not for {metric!r}")
    if not len(values) or len(values) != len(yes):
        raise InputError(f"{len(values)} scores but {len(yes)} right answers; expected equally many, at least 1")
    if not yes.any() or yes.all():
        return 0.5
    order = np.argsort(-values, kind="stable")
    ordered = values[order]
    last = np.append(ordered[1:] < ordered[:-1], True)  # a threshold cannot part equal scores
    given = np.concatenate([[0], np.flatnonzero(last) + 1])  # rows that get a yes
    hits = np.concatenate([[0], np.cumsum(yes[order])])[given]
    quality = _METRICS[metric](hits, given - hits, yes.sum(), len(values) - yes.sum())
    # Between the lowest score that gets a yes and the highest that does not; beyond the ends there is 1 and 0.
    above, below = np.append(1.0, ordered)[given], np.append(ordered, 0.0)[given]
    above[0] = max(1.0, float(ordered[0]))
    middle = (above + below) / 2
    parted = (middle > below) | (given == len(values))
    thresholds = np.where(parted, middle, np.nextafter(below, np.inf))  # neighbours have no number between them
    best = np.flatnonzero(quality >= quality.max() - 1e-12)
    return float(thresholds[best[np.argmin(np.abs(thresholds[best] - 0.5))]])


def best_thresholds(scores: npt.ArrayLike, right: npt.ArrayLike, metric: str = "f1") -> Floats:
    """:func:`best_threshold` of each label: ``(n, C)`` and ``(n, C)`` to ``(C,)``."""
    values, yes = np.asarray(scores), np.asarray(right)
    return np.array([best_threshold(values[:, label], yes[:, label], metric) for label in range(values.shape[1])])


def cross_fit(
    num_rows: int, fit_and_apply: Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], npt.NDArray[ScalarT]]
) -> npt.NDArray[ScalarT]:
    """Results of a decision for each part of the rows, at least 2, by a fit on the others, in the order of the rows."""
    order = np.random.Generator(np.random.PCG64(0)).permutation(num_rows)
    parts = np.array_split(order, min(FOLDS, num_rows))
    results = [fit_and_apply(np.setdiff1d(order, part), part) for part in parts]
    joined = np.concatenate(results)
    return joined[np.argsort(np.concatenate(parts), kind="stable")]


def _f1(hits: Counts, misses: Counts, yes: int, no: int) -> Floats:
    return np.asarray(2.0 * hits / np.maximum(hits + misses + yes, 1))


def _accuracy(hits: Counts, misses: Counts, yes: int, no: int) -> Floats:
    return np.asarray((hits + no - misses) / (yes + no))


def _matthews(hits: Counts, misses: Counts, yes: int, no: int) -> Floats:
    given = hits + misses
    spread = given * (yes + no - given) * float(yes) * float(no)
    covariance = hits * float(no) - misses * float(yes)
    return np.asarray(np.where(spread > 0, covariance / np.sqrt(np.maximum(spread, 1.0)), 0.0))


#: Quality of "yes" for the first rows in order: from hits, false alarms, and how many rows are yes and no in all.
_METRICS: dict[str, Callable[[Counts, Counts, int, int], Floats]] = {
    "f1": _f1,
    "accuracy": _accuracy,
    "matthews": _matthews,
}
