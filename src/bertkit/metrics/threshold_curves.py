"""What every threshold of a score would give: ROC and precision-recall curves; equal to scikit-learn's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ThresholdCurve:
    """Rates at every distinct score as threshold, from the highest down, ``(K,)`` each.

    thresholds: a row is taken if its score is at least this one. true_rate: share of the right rows that are taken
        (recall). false_rate: share of the wrong rows that are. precision: share of the taken rows that are right.
    """

    thresholds: Floats
    true_rate: Floats
    false_rate: Floats
    precision: Floats

    @property
    def area(self) -> float:
        """Area under the ROC curve: the chance that a right row scores above a wrong one; ties count half."""
        false, true = np.concatenate([[0.0], self.false_rate]), np.concatenate([[0.0], self.true_rate])
        return float((np.diff(false) * (true[1:] + true[:-1]) / 2).sum())

    @property
    def average_precision(self) -> float:
        """Mean precision over recall: every threshold weighs by the recall that it adds."""
        return float((np.diff(self.true_rate, prepend=0.0) * self.precision).sum())


def threshold_curve(scores: npt.ArrayLike, correct: npt.ArrayLike) -> ThresholdCurve:
    """The curve of scores ``(n,)`` of rows that are right (True) or not ``(n,)``; both must occur (InputError)."""
    values, right = np.asarray(scores, dtype=np.float64), np.asarray(correct, dtype=np.bool_)
    if values.shape != right.shape or values.ndim != 1:
        raise InputError(f"scores have shape {values.shape}, labels {right.shape}; both must be (n,)")
    if not right.any() or right.all():
        raise InputError(f"all {len(right):,} rows are {'right' if len(right) and right.all() else 'wrong'}: no curve")
    order = np.argsort(-values, kind="stable")
    values, right = values[order], right[order]
    last = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)  # of each distinct score
    true, taken = np.cumsum(right)[last], last + 1
    wrong = len(right) - right.sum()
    return ThresholdCurve(values[last], true / right.sum(), (taken - true) / wrong, true / taken)
