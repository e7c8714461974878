"""Mined negatives, beside a loop over all cosines."""

from __future__ import annotations

import numpy as np
import pytest
from test_embedding_scoring import columns_of, cosine

from bertkit.errors import DataError
from bertkit.ragged import Floats
from bertkit.tasks.embeddings.features import NONE, TextColumns
from bertkit.tasks.embeddings.mining import LOOKED_AT, Negatives, _summary, find_negatives


@pytest.fixture
def vectors() -> Floats:
    return np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)


@pytest.fixture
def rows() -> TextColumns:
    """Anchors 0 to 9, of which 0 has two positives; what is searched are 20 to 59."""
    numbers = [[0, 20, 40], [0, 21, NONE], *([anchor, 21 + anchor, 40 + anchor] for anchor in range(1, 10))]
    return columns_of([*numbers, *([10, other, NONE] for other in range(31, 60))])


@pytest.mark.parametrize("most", [0.95, 0.7, 1.0])
def test_the_nearest_that_are_not_too_near(most: float, vectors: Floats, rows: TextColumns) -> None:
    found = find_negatives(vectors, rows, count=3, most=most)
    searched = sorted({number for row in rows.columns[:, 1:].tolist() for number in row if number != NONE})
    assert len(searched) == 40
    for place, row in enumerate(rows.columns.tolist()):
        taken = {n for other in rows.columns.tolist() if other[0] == row[0] for n in other[1:]} | {row[0]}
        near = sorted(set(searched) - taken, key=lambda n: -cosine(vectors, row[0], n))[: 3 * LOOKED_AT]
        positive = cosine(vectors, row[0], row[1])
        limit = positive - (1 - most) * abs(positive)
        right = [n for n in near if cosine(vectors, row[0], n) <= limit][:3]
        assert found.numbers[place].tolist() == right + [NONE] * (3 - len(right)), place
        cosines = [cosine(vectors, row[0], n) for n in right]
        np.testing.assert_allclose(found.cosines[place, : len(right)], cosines, atol=1e-6)


def test_texts_that_say_the_same_are_no_negatives(vectors: Floats) -> None:
    """Text 3 says what anchor 0 says, 4 what its positive says; 5 and 6 say the same, so one of them is enough."""
    rows = columns_of([[0, 10], [1, 3], [1, 4], [1, 5], [1, 6], [2, 7]])
    vectors[10], vectors[[3, 4, 5, 6, 7]] = vectors[0], vectors[0] + 0.3
    same = rows.same.copy()
    same[3], same[4], same[6] = same[0], same[10], same[5]
    found = find_negatives(vectors, TextColumns(rows.texts, rows.columns, same), count=5, most=1.0)
    assert {n for n in found.numbers[0].tolist() if n != NONE} in ({5, 7}, {6, 7})


def test_negative_cosines_of_positives(vectors: Floats) -> None:
    """Where the positive is below 0, a negative must be further below, as without a sign it would be nearer."""
    vectors[0], vectors[10] = [1, 0, 0], [-0.5, 0.8, 0]
    rows = columns_of([[0, 10], *([1, other] for other in range(11, 40))])
    found = find_negatives(vectors, rows, count=29, most=0.9)
    limit = 1.1 * cosine(vectors, 0, 10)
    below = [n for n in range(11, 40) if cosine(vectors, 0, n) <= limit]
    assert set(found.numbers[0].tolist()) - {NONE} == set(below)
    assert below


def test_nothing_found() -> None:
    nothing = Negatives(np.full((2, 3), NONE), np.zeros((2, 3), np.float32))
    with pytest.raises(DataError, match="a larger max_negative"):
        _summary(nothing, 3)
    nothing.numbers[0, 0] = 4
    assert "1 negative for 2 rows" in _summary(nothing, 3)
    assert "2 rows got fewer than 3" in _summary(nothing, 3)
