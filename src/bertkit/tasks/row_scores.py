"""A scored set row by row, as its file of predictions has it: what two runs are compared by."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertkit.ragged import Flags, Ints


@dataclass(frozen=True, slots=True)
class RowScores:
    """n rows of a ``predictions-*.jsonl``.

    keys: what a row is, its right answer included: equal keys are the same row.
    shown: what people see of it, one line each. gold, predicted: both answers, as text.
    right: whether the answer is wholly right ``(n,)``; None where answers are more or less right (scores).
    metric: the main metric of the rows of these numbers; a number may occur more than once.
    """

    keys: Sequence[Hashable]
    shown: Sequence[str]
    gold: Sequence[str]
    predicted: Sequence[str]
    right: Flags | None
    metric: Callable[[Ints], float]


def mean_of(values: npt.NDArray[np.float64]) -> Callable[[Ints], float]:
    """A main metric that is the mean of one value a row."""
    return lambda rows: float(values[rows].mean())
