"""How well a map of vectors keeps their neighbours, and how well neighbours know labels: numpy only.

Letters of the array shapes: N points, D width, R points of a block, K nearest.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError
from bertkit.ragged import Ints

Doubles = npt.NDArray[np.float64]
#: Distances that are held at once.
_MOST_DISTANCES = 4 << 20


def trustworthiness(vectors_ND: npt.ArrayLike, map_N2: npt.ArrayLike, neighbours: int = 5) -> float:
    """From 0 to 1: how far the neighbours of a point on the map are its neighbours among the vectors, too.

    Venna and Kaski 2001, equal to ``sklearn.manifold.trustworthiness`` for Euclidean distances without ties; it holds
    the distances of a block of points, not of all.
    """
    vectors, places = (np.asarray(values, np.float64) for values in (vectors_ND, map_N2))
    count = len(vectors)
    if len(places) != count or not 1 <= neighbours < count / 2:
        raise InputError(
            f"neighbours={neighbours} of {count} vectors and {len(places)} places: expected as many places, and "
            "neighbours from 1 to less than half of their number"
        )
    penalty = 0
    for rows, distances_RN in _distances(vectors):
        near_RK = _nearest_others(places, rows, neighbours)
        for own_R in np.take_along_axis(distances_RN, near_RK, axis=1).T:
            ranks_R = 1 + (distances_RN < own_R[:, None]).sum(axis=1)
            penalty += int(np.maximum(ranks_R - neighbours, 0).sum())
    return 1.0 - penalty * 2.0 / (count * neighbours * (2.0 * count - 3.0 * neighbours - 1.0))


def neighbour_accuracy(vectors_ND: npt.ArrayLike, labels_N: npt.ArrayLike, neighbours: int = 10) -> float:
    """Share of points with the most frequent label of their nearest other points (of equals the lowest number).

    labels_N: numbers from 0 on.
    """
    vectors, labels = np.asarray(vectors_ND, np.float64), np.asarray(labels_N, np.int64)
    if len(labels) != len(vectors) or not 1 <= neighbours < len(labels):
        raise InputError(
            f"neighbours={neighbours} of {len(vectors)} vectors and {len(labels)} labels: expected as many labels, and "
            "neighbours from 1 to less than their number"
        )
    right = 0
    for rows, distances_RN in _distances(vectors):
        votes_RK = labels[np.argpartition(distances_RN, neighbours - 1, axis=1)[:, :neighbours]]
        for own, votes_K in zip(labels[rows], votes_RK, strict=True):
            right += int(np.bincount(votes_K).argmax() == own)
    return right / len(labels)


def _nearest_others(x_ND: Doubles, rows: slice, count: int) -> Ints:
    found: Ints = np.argpartition(_distances_from(x_ND, rows), count - 1, axis=1)[:, :count]
    return found


def _distances(x_ND: Doubles) -> Iterator[tuple[slice, Doubles]]:
    """Blocks of points with their squared distances to all, ``(R, N)``."""
    size = max(1, _MOST_DISTANCES // len(x_ND))
    for first in range(0, len(x_ND), size):
        rows = slice(first, min(first + size, len(x_ND)))
        yield rows, _distances_from(x_ND, rows)


def _distances_from(x_ND: Doubles, rows: slice) -> Doubles:
    squares_N = np.square(x_ND).sum(axis=1)
    found: Doubles = squares_N[rows, None] - 2.0 * (x_ND[rows] @ x_ND.T) + squares_N
    found[np.arange(len(found)), np.arange(rows.start, rows.stop)] = np.inf  # a point is not its own neighbour
    return found
