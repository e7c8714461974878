"""The vectors that are nearest to others, exactly, in the memory of a block.

Letters of the array shapes: Q queries, N documents, D width, K nearest.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError
from bertkit.metrics.vector_similarity import unit_vectors
from bertkit.ragged import Floats, Ints

#: Queries and documents that are compared at once: 8 MB of products.
QUERIES, DOCUMENTS = 256, 8192


def directions(vectors: npt.ArrayLike) -> Floats:
    """Vectors of any kind of numbers with length 1, float32 ``(N, D)``; products of them are cosines."""
    return unit_vectors(np.asarray(vectors, np.float32))


def nearest(
    queries_QD: Floats, documents_ND: Floats, k: int, advance: Callable[[int], None] = lambda count: None
) -> tuple[Ints, Floats]:
    """The ``min(k, N)`` documents with the largest products, the largest first: numbers and products, ``(Q, K)``.

    Every product is computed. Of equal products the document with the lower number comes first; which of them are among
    the last of the K is not defined. ``advance``, called with the queries of each block, may raise to stop.
    """
    if queries_QD.ndim != 2 or documents_ND.ndim != 2 or queries_QD.shape[1] != documents_ND.shape[1]:
        raise InputError(f"vectors of one width are compared, got {queries_QD.shape} and {documents_ND.shape}")
    if k < 1 or not len(documents_ND):
        raise InputError(
            f"k={k} nearest of {len(documents_ND)} documents: give k of 1 or more, and at least one document"
        )
    numbers = np.empty((len(queries_QD), min(k, len(documents_ND))), np.int64)
    scores = np.empty(numbers.shape, np.float32)
    for first in range(0, len(queries_QD), QUERIES):
        part = slice(first, first + QUERIES)
        numbers[part], scores[part] = _nearest_of_all(queries_QD[part], documents_ND, numbers.shape[1])
        advance(len(numbers[part]))
    return numbers, scores


def _nearest_of_all(queries_QD: Floats, documents_ND: Floats, k: int) -> tuple[Ints, Floats]:
    numbers, scores = np.empty((len(queries_QD), 0), np.int64), np.empty((len(queries_QD), 0), np.float32)
    for first in range(0, len(documents_ND), DOCUMENTS):
        products = queries_QD @ documents_ND[first : first + DOCUMENTS].T
        best = _largest(products, k)
        numbers = np.concatenate([numbers, best + first], axis=1)
        scores = np.concatenate([scores, np.take_along_axis(products, best, axis=1)], axis=1)
        kept = _largest(scores, k)
        numbers, scores = np.take_along_axis(numbers, kept, axis=1), np.take_along_axis(scores, kept, axis=1)
    order = np.lexsort((numbers, -scores), axis=1)
    return np.take_along_axis(numbers, order, axis=1), np.take_along_axis(scores, order, axis=1)


def _largest(values: Floats, k: int) -> Ints:
    """Where the ``min(k, columns)`` largest values of each row are, in no order."""
    if values.shape[1] <= k:
        return np.broadcast_to(np.arange(values.shape[1]), values.shape)
    found: Ints = np.argpartition(values, -k, axis=1)[:, -k:]
    return found
