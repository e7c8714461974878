"""Duplicate texts: first those that differ in case and blanks only, then similar vectors, in groups or in pairs.

Letters of the array shapes: N texts, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.errors import InputError
from bertkit.metrics.nearest import nearest
from bertkit.ragged import Floats, Ints
from bertkit.tasks.hold_out import group_rows, plain_text

#: Vectors that are compared at once with as many others.
ROWS = 2048
#: Of :func:`auto_threshold`, which describes them.
CHANCE, BELOW, STRICT = 0.1, 0.95, 0.9
#: Texts from which on there is an automatic threshold.
FEWEST = 20


@dataclass(frozen=True, slots=True)
class NearTexts:
    """Rows that say the same.

    same: rows of equal text but for case and blanks, two or more each, in the order of the file.
    pairs: ``(first, second, cosine)`` of other texts, the most similar first; of rows with the same text the first one
    stands for all. num_pairs: how many there are with a cosine of ``threshold``; ``pairs`` has at most the limit.
    """

    same: list[list[int]]
    pairs: list[tuple[int, int, float]]
    num_pairs: int
    threshold: float


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that say the same, two or more, in order. cosines: of each with the first, 1.0 for the same text."""

    rows: list[int]
    cosines: list[float]


@dataclass(frozen=True, slots=True)
class NearGroups:
    """Groups of rows, those whose texts are surest the same first.

    nearest: of each different text the cosine with the nearest other one; None where there is only one.
    """

    groups: list[Group]
    threshold: float
    nearest: Floats | None


def find_groups(
    texts: Sequence[str],
    encode: Callable[[list[int]], Floats],
    threshold: float | None,
    advance: Callable[[int], None] = lambda count: None,
) -> NearGroups:
    """Texts in groups: each text of a group is like its first one, by a cosine of at least ``threshold``.

    Texts are taken in their order: one that is like the first text of a group joins the group whose first text it is
    most like, and another begins a group. So if only the first text of each group is kept, every text that is removed
    is like one that was kept. ``threshold`` None: :func:`auto_threshold`. ``encode`` makes vectors of length 1 of some
    rows; ``advance`` is called with texts as they are compared, twice in all.
    """
    same = group_rows(map(plain_text, texts))
    vectors_ND = encode([rows[0] for rows in same])
    closest, second = nearest_two(vectors_ND, advance)
    chosen = auto_threshold(closest, second) if threshold is None else threshold
    members: dict[int, list[tuple[int, float]]] = {}
    firsts, cosines = firsts_of_groups(vectors_ND, chosen, advance)
    for rows, first, cosine in zip(same, firsts.tolist(), cosines.tolist(), strict=True):
        members.setdefault(first, []).extend((row, cosine) for row in rows)
    groups = [Group(*map(list, zip(*sorted(found), strict=True))) for found in members.values() if len(found) > 1]
    groups.sort(key=lambda group: (-min(group.cosines), group.rows[0]))
    return NearGroups(groups, chosen, closest if len(same) > 1 else None)


def nearest_two(vectors_ND: Floats, advance: Callable[[int], None] = lambda count: None) -> tuple[Floats, Floats]:
    """Cosines of each text with the nearest other text and with the second nearest ``(N,)``; -1 where there is none."""
    own = np.arange(len(vectors_ND))[:, None]
    numbers, products = nearest(vectors_ND, vectors_ND, 3, advance)
    others = np.where(numbers == own, np.float32(-1.0), np.minimum(products, np.float32(1.0)))
    padded = np.pad(others, ((0, 0), (0, 2)), constant_values=-1.0)
    found: Floats = -np.sort(-padded, axis=1)
    return found[:, 0], found[:, 1]


def auto_threshold(closest: Floats, second: Floats) -> float:
    """A threshold from the texts themselves: their cosines with the nearest other text, and with the second nearest.

    Few texts have two duplicates, so second nearest texts show how alike texts are that only have a subject in common.
    It is the lowest cosine that at most :data:`CHANCE` times as many texts reach with their second nearest as with
    their nearest; at least what :data:`BELOW` of the second nearest are below, so that it fits models whose cosines are
    all high; and at most :data:`STRICT` if that allows it, for lists in which texts have several duplicates. Decision
    0281 has what it is worth.
    """
    if len(second) < FEWEST:
        raise InputError(
            f"an automatic threshold needs {FEWEST} different texts, and there are {len(second)}; give a cosine, for "
            "example threshold=0.9"
        )
    candidates, others = np.sort(closest), np.sort(second)
    pairs = len(candidates) - np.searchsorted(candidates, candidates)
    chance = len(others) - np.searchsorted(others, candidates)
    rare = candidates[chance <= CHANCE * pairs]
    lowest = float(rare[0]) if len(rare) else 1.0
    return min(max(float(np.quantile(second, BELOW)), min(lowest, STRICT)), 1.0)


def firsts_of_groups(
    vectors_ND: Floats, threshold: float, advance: Callable[[int], None] = lambda count: None
) -> tuple[Ints, Floats]:
    """Of each row the first row of its group, and the cosine with it ``(N,)``; see :func:`find_groups`."""
    _check_threshold(threshold)
    firsts, cosines = np.arange(len(vectors_ND)), np.ones(len(vectors_ND), np.float32)
    leaders = np.zeros(0, np.int64)
    for start in range(0, len(vectors_ND), ROWS):
        mine = vectors_ND[start : start + ROWS]
        best, places = np.full(len(mine), -np.inf, np.float32), np.zeros(len(mine), np.int64)
        for begin in range(0, len(leaders), ROWS):
            part = leaders[begin : begin + ROWS]
            products = mine @ vectors_ND[part].T
            at = products.argmax(axis=1)
            values = np.take_along_axis(products, at[:, None], axis=1)[:, 0]
            better = values > best
            best[better], places[better] = values[better], part[at[better]]
        products, own = mine @ mine.T, list[int]()
        for row in range(len(mine)):
            if own:
                near = own[int(products[row, own].argmax())]
                if products[row, near] > best[row]:
                    best[row], places[row] = products[row, near], start + near
            if best[row] >= threshold:
                firsts[start + row], cosines[start + row] = places[row], min(float(best[row]), 1.0)
            else:
                own.append(row)
        leaders = np.concatenate([leaders, start + np.array(own, np.int64)])
        advance(len(mine))
    return firsts, cosines


def _check_threshold(threshold: float) -> None:
    if not -1 < threshold <= 1:
        raise InputError(f"threshold={threshold} is not a cosine above -1 and at most 1")


def similar_pairs(
    vectors_ND: Floats, threshold: float, limit: int, advance: Callable[[int], None] = lambda count: None
) -> tuple[Ints, Ints, Floats, int]:
    """All pairs with a cosine of at least ``threshold``: their rows, first before second, cosines, and number.

    Every pair is compared, a block at a time; of more than ``limit`` pairs the most similar are returned, in order.
    """
    _check_threshold(threshold)
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
    threshold: float | None,
    limit: int,
    advance: Callable[[int], None] = lambda count: None,
) -> NearTexts:
    """Equal texts, and pairs of similar ones; ``encode`` and ``threshold`` are as of :func:`find_groups`."""
    groups = group_rows(map(plain_text, texts))
    firsts = np.array([rows[0] for rows in groups], np.int64)
    vectors_ND = encode(firsts.tolist())
    chosen = auto_threshold(*nearest_two(vectors_ND, advance)) if threshold is None else threshold
    rows, others, cosines, total = similar_pairs(vectors_ND, chosen, limit, advance)
    pairs = zip(firsts[rows].tolist(), firsts[others].tolist(), cosines.tolist(), strict=True)
    return NearTexts([rows for rows in groups if len(rows) > 1], list(pairs), total, chosen)
