"""How far a score could lie elsewhere: examples and seeds drawn with replacement. Imports no torch."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

#: Sets that are drawn for an interval; fewer of many examples, so that all draws have at most DRAWN numbers.
NUM_DRAWS, FEWEST_DRAWS, DRAWN = 1000, 100, 10_000_000


def bootstrap_draws(num_examples: int, num_draws: int | None = None) -> npt.NDArray[np.int64]:
    """Numbers of examples drawn with replacement, always the same ones, so that seeds and systems can be paired.

    ``num_draws`` None means 1,000, and fewer from 10,000 examples on. The result is int64 ``(draws, examples)``.
    """
    if num_draws is None:
        num_draws = min(NUM_DRAWS, max(FEWEST_DRAWS, DRAWN // num_examples))
    generator = np.random.Generator(np.random.PCG64([num_examples, 0xB0]))
    return generator.integers(num_examples, size=(num_draws, num_examples), dtype=np.int64)


def bootstrap_means(of_seeds: Sequence[Sequence[float]], seed: int = 0) -> list[float]:
    """For each of K draws of the dev examples, the mean of the metric over seeds drawn with replacement.

    ``of_seeds`` has K values for each seed.
    """
    choose = random.Random(seed)
    count = len(of_seeds)
    return [statistics.fmean(of_seeds[choose.randrange(count)][k] for _ in of_seeds) for k in range(len(of_seeds[0]))]


def interval_of(values: Sequence[float] | None) -> list[float] | None:
    """Where the middle 95 % of bootstrap values begin and end; None for no values."""
    if not values:
        return None
    ordered = sorted(values)
    cut = (len(ordered) - 1) * 0.025
    return [_between(ordered, cut), _between(ordered, len(ordered) - 1 - cut)]


def _between(ordered: Sequence[float], place: float) -> float:
    """The value at a place that need not be whole, by linear interpolation."""
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
