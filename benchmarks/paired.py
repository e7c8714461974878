"""Paired differences between seeds: their mean, with its interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

#: 97.5 % points of Student's t for 1 to 19 degrees of freedom; 1.96 beyond.
T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
        2.110, 2.101, 2.093)  # fmt: skip


def mean_interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Mean and its 95 % interval by Student's t; NaN bounds for a single difference."""
    mean, half = statistics.fmean(differences), math.nan
    if len(differences) > 1:
        factor = T975[len(differences) - 2] if len(differences) - 2 < len(T975) else 1.96
        half = factor * statistics.stdev(differences) / math.sqrt(len(differences))
    return mean, mean - half, mean + half
