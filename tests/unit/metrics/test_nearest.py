"""Exact nearest vectors and the V-measure, beside all products sorted and beside scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import v_measure_score

from bertkit.errors import InputError
from bertkit.metrics import nearest as module
from bertkit.metrics.clusters import v_measure
from bertkit.metrics.nearest import directions, nearest


@pytest.mark.parametrize(("blocks", "k"), [((256, 8192), 5), ((7, 11), 5), ((3, 4), 9), ((1, 1), 2), ((7, 11), 300)])
def test_blocks_find_what_sorting_all_products_finds(
    blocks: tuple[int, int], k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUERIES", blocks[0])
    monkeypatch.setattr(module, "DOCUMENTS", blocks[1])
    generator = np.random.default_rng(0)
    queries, documents = (directions(generator.normal(size=(rows, 8))) for rows in (20, 60))
    products = queries.astype(np.float64) @ documents.T.astype(np.float64)
    seen: list[int] = []
    numbers, scores = nearest(queries, documents, k, seen.append)
    right = np.argsort(-products, axis=1)[:, :k]
    assert np.array_equal(numbers, right)
    np.testing.assert_allclose(scores, np.take_along_axis(products, right, axis=1), atol=1e-6)
    assert sum(seen) == 20


def test_equal_vectors_come_in_the_order_of_their_numbers() -> None:
    documents = np.array([[1, 0], [0, 1], [1, 0], [1, 0]], np.float32)
    assert nearest(documents[:1], documents, 3)[0].tolist() == [[0, 2, 3]]


def test_what_cannot_be_searched() -> None:
    vectors = np.ones((2, 3), np.float32)
    with pytest.raises(InputError, match="one width"):
        nearest(vectors, np.ones((2, 4), np.float32), 1)
    with pytest.raises(InputError, match="of 0 documents: give k of 1 or more, and at least one document"):
        nearest(vectors, vectors[:0], 1)
    assert directions(np.zeros((1, 3), np.int8)).tolist() == [[0, 0, 0]]


def test_v_measure_is_that_of_scikit_learn() -> None:
    generator = np.random.default_rng(1)
    for clusters, labels in ((2, 2), (5, 3), (1, 4), (4, 1), (1, 1), (30, 30)):
        found, right = generator.integers(clusters, size=50), generator.integers(labels, size=50)
        assert v_measure(found, right) == pytest.approx(v_measure_score(right, found), abs=1e-12)
    assert v_measure(["b", "b", "a"], [0, 0, 1]) == 1.0
    with pytest.raises(InputError, match="as many clusters"):
        v_measure([1, 2], [1])
