"""How far a score could lie elsewhere: its 95 % interval over examples drawn with replacement (Efron 1979).

Examples that say the same are drawn together, as one group: they are no independent evidence. Where every set has the
same score, the bootstrap knows no width. A mean of values with bounds, all of which lie at one bound, then gets the
interval of Clopper and Pearson (1934), by the number of groups; other scores have too few examples for one.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: The numbers of the examples of each set that was drawn.
Draws = Sequence[npt.NDArray[np.int64]]
#: A score of each set.
Drawn = npt.NDArray[np.float64]
#: Sets that are drawn for an interval; of many examples fewer, about DRAWN numbers in all, but at least FEWEST_DRAWS.
NUM_DRAWS, FEWEST_DRAWS, DRAWN = 1000, 100, 10_000_000
#: On each side of an interval.
TAIL = 0.025
#: In place of an interval that cannot be told.
TOO_FEW = "too few rows"


@dataclass(frozen=True, slots=True)
class Sets:
    """Sets of examples that were drawn, and the number of groups, or of examples, that they were drawn from."""

    draws: Draws
    num_groups: int

    def interval(
        self, values: Sequence[float] | Drawn | None, bounds: tuple[float, float] | None
    ) -> list[float] | None:
        """See :func:`interval_of`; ``values`` are those of the sets."""
        listed = values.tolist() if isinstance(values, np.ndarray) else values
        return interval_of(listed, self.num_groups, bounds)


def bootstrap_draws(groups: int | Sequence[Sequence[int]], num_draws: int | None = None) -> Draws:
    """Sets of examples, or groups of them, drawn with replacement, the same for the same arguments."""
    count = groups if isinstance(groups, int) else len(groups)
    total = groups if isinstance(groups, int) else sum(map(len, groups))
    if num_draws is None:
        num_draws = min(NUM_DRAWS, max(FEWEST_DRAWS, DRAWN // total))
    generator = np.random.Generator(np.random.PCG64([count, 0xB0]))
    drawn = list(generator.integers(count, size=(num_draws, count), dtype=np.int64))
    if isinstance(groups, int) or total == count:
        return drawn
    members = [np.array(group, np.int64) for group in groups]
    return [np.concatenate([members[number] for number in draw.tolist()]) for draw in drawn]


def drawn_means(values: npt.NDArray[np.floating], draws: Draws) -> Drawn:
    """The mean of each set, NaN left out; of a set of nothing else the mean of all values."""
    there = ~np.isnan(values)
    if there.all():
        return np.array([values[draw].mean() for draw in draws], np.float64)
    known, overall = np.where(there, values, 0.0), np.nanmean(values)
    return np.array([known[draw].sum() / n if (n := there[draw].sum()) else overall for draw in draws], np.float64)


def bootstrap_means(of_seeds: Sequence[Sequence[float]], seed: int = 0) -> list[float]:
    """For each of K draws of the dev examples, the mean of the metric over seeds drawn with replacement."""
    choose = random.Random(seed)
    count = len(of_seeds)
    return [statistics.fmean(of_seeds[choose.randrange(count)][k] for _ in of_seeds) for k in range(len(of_seeds[0]))]


def interval_of(
    values: Sequence[float] | None, num_groups: int, bounds: tuple[float, float] | None
) -> list[float] | None:
    """The 95 % interval of a score by its bootstrap values, None if they cannot tell; ``bounds`` are of a mean."""
    if not values:
        return None
    low, high = middle_of(values)
    if low < high:
        return [low, high]
    if bounds is None or low not in bounds:
        return None
    # The mean of values of which none in n is away from the bound: that share is at most 1 - 0.025 ** (1 / n).
    reach = (bounds[1] - bounds[0]) * (1.0 - TAIL ** (1.0 / num_groups))
    return [low - reach, high] if low == bounds[1] else [low, high + reach]


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share, ``right`` of ``count``, as if they were independent (Wilson 1927)."""
    share, z2 = right / count, statistics.NormalDist().inv_cdf(1.0 - TAIL) ** 2
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = math.sqrt(z2 * (share * (1 - share) / count + z2 / (4 * count**2))) / (1 + z2 / count)
    return max(0.0, middle - half), min(1.0, middle + half)


def middle_of(values: Sequence[float]) -> tuple[float, float]:
    """Where the middle 95 % of values begin and end."""
    ordered = sorted(values)
    cut = (len(ordered) - 1) * TAIL
    return _between(ordered, cut), _between(ordered, len(ordered) - 1 - cut)


def interval_text(interval: Sequence[float] | None, sign: str = "") -> str:
    """An interval in words; ``sign`` is ``"+"`` for differences."""
    return f"{interval[0]:{sign}.4f} to {interval[1]:{sign}.4f}" if interval else TOO_FEW


def _between(ordered: Sequence[float], place: float) -> float:
    """The value at a place that need not be whole, by linear interpolation."""
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
