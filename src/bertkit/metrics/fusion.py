"""A search by vectors and one by words as one: the weighted sum of their standardized scores. Numpy only.

The scores of all texts for a query get mean 0 and standard deviation 1, in each search by itself. A word that stands in
one text only is far from the mean, and so decides; words that many texts have do not. Reciprocal ranks (Cormack, Clarke
and Büttcher 2009) know no distances, and lose where one search is much worse (docs/decisions/0279).

Letters of the array shapes: Q queries, N texts, K best.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from bertkit.ragged import Floats, Ints

FloatT = TypeVar("FloatT", bound=np.floating)
#: How much the scores of vectors count where nothing is said; words count the rest.
SHARE = 0.8


def standardized(scores_QN: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Scores with mean 0 and standard deviation 1 over each row; equal ones become 0."""
    if not scores_QN.size:
        return np.zeros(scores_QN.shape)
    centered = np.asarray(scores_QN, np.float64) - scores_QN.mean(axis=1, keepdims=True, dtype=np.float64)
    deviation = np.sqrt((centered**2).mean(axis=1, keepdims=True))
    # Equal scores differ from their mean by rounding.
    least = 1e-7 * np.abs(scores_QN).max(axis=1, keepdims=True, initial=0.0)
    return np.where(deviation > least, centered / np.where(deviation > least, deviation, 1.0), 0.0)


def mixed(vectors_QN: npt.NDArray[np.floating], words_QN: npt.NDArray[np.floating], share: float) -> Floats:
    """The scores ``(Q, N)`` of both searches together; ``share`` is that of vectors, from 0 to 1."""
    found: Floats = (share * standardized(vectors_QN) + (1.0 - share) * standardized(words_QN)).astype(np.float32)
    return found


def best_of(scores_N: npt.NDArray[FloatT], k: int) -> tuple[Ints, npt.NDArray[FloatT]]:
    """Numbers and scores of the ``k`` best, best first; equal ones in their order."""
    if k < len(scores_N):
        places = np.flatnonzero(scores_N >= np.partition(scores_N, -k)[-k])
    else:
        places = np.arange(len(scores_N))
    order = places[np.argsort(-scores_N[places], kind="stable")][:k]
    return order, scores_N[order]
