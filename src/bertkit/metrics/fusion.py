"""Several rankings of the same documents as one: reciprocal rank fusion. Numpy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertkit.ragged import Floats, Ints

#: A document at a rank, counted from 1, gets 1 / (60 + rank) (Cormack, Clarke and Büttcher 2009, section 2).
CONSTANT = 60


def fused(rankings: Sequence[Sequence[int]], k: int) -> tuple[Ints, Floats]:
    """The ``k`` documents with the largest sum of ``1 / (60 + rank)`` over all rankings, best first; ties by number."""
    sums: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, start=1):
            sums[number] = sums.get(number, 0.0) + 1.0 / (CONSTANT + rank)
    best = sorted(sums, key=lambda number: (-sums[number], number))[:k]
    return np.array(best, np.int64), np.array([sums[number] for number in best], np.float32)
