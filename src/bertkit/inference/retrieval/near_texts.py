"""Duplicate texts: first those that differ in case and blanks only, then pairs of similar vectors.

Letters of the array shapes: N texts, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.errors import InputError
from bertkit.ragged import Floats, Ints
from bertkit.tasks.hold_out import group_rows, plain_text

#: Vectors that are compared at once with as many others.
ROWS = 2048


@dataclass(frozen=True, slots=True)
class NearTexts:
    """Rows that say the same.

    same: rows of equal text but for case and blanks, two or more each, in the order of the file.
    pairs: ``(first, second, cosine)`` of other texts, the most similar first; of rows with the same text the first one
    stands for all. num_pairs: how many there are; ``pairs`` has at most the limit.
    """

    same: list[list[int]]
    pairs: list[tuple[int, int, float]]
    num_pairs: int


def similar_pairs(
    vectors_ND: Floats, threshold: float, limit: int, advance: Callable[[int], None] = lambda count: None
) -> tuple[Ints, Ints, Floats, int]:
    """All pairs with a cosine of at least ``threshold``: their rows, first before second, cosines, and number.

    Every pair is compared, a block at a time; of more than ``limit`` pairs the most similar are returned, in order.
    """
    if not -1 < threshold <= 1:
        raise InputError(f"threshold={threshold} is not a cosine above -1 and at most 1")
    if limit < 1:
        raise InputError(f"limit={limit} is too small; give a whole number from 1")
    first, second = np.zeros(0, np.int64), np.zeros(0, np.int64)
    cosines, total = np.zeros(0, np.float32), 0
    for start in range(0, len(vectors_ND), ROWS):
        for rows, columns, products in _pairs_from(vectors_ND, start, threshold):
            total += len(rows)
            first, second = np.concatenate([first, rows]), np.concatenate([second, columns])
            cosines = np.concatenate([cosines, products])
            if len(first) > 2 * limit:
                kept = np.sort(np.argsort(-cosines, kind="stable")[:limit])
                first, second, cosines = first[kept], second[kept], cosines[kept]
        advance(min(ROWS, len(vectors_ND) - start))
    order = np.lexsort((second, first, -cosines))[:limit]
    return first[order], second[order], cosines[order], total


def _pairs_from(vectors_ND: Floats, start: int, threshold: float) -> Iterator[tuple[Ints, Ints, Floats]]:
    """The pairs of a block of rows with all rows behind each."""
    mine = vectors_ND[start : start + ROWS]
    for other in range(start, len(vectors_ND), ROWS):
        products = mine @ vectors_ND[other : other + ROWS].T
        near = products >= threshold
        if other == start:
            near = np.triu(near, k=1)
        rows, columns = np.nonzero(near)
        if len(rows):
            yield rows + start, columns + other, np.minimum(products[rows, columns], np.float32(1.0))


def find_near_texts(
    texts: Sequence[str],
    encode: Callable[[list[int]], Floats],
    threshold: float,
    limit: int,
    advance: Callable[[int], None] = lambda count: None,
) -> NearTexts:
    """Equal texts, and pairs of similar ones; ``encode`` makes vectors of length 1 of some rows."""
    groups = group_rows(map(plain_text, texts))
    firsts = np.array([rows[0] for rows in groups], np.int64)
    rows, others, cosines, total = similar_pairs(encode(firsts.tolist()), threshold, limit, advance)
    pairs = zip(firsts[rows].tolist(), firsts[others].tolist(), cosines.tolist(), strict=True)
    return NearTexts([rows for rows in groups if len(rows) > 1], list(pairs), total)
