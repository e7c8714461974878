"""Neighbours on a map and labels of neighbours, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.manifold import trustworthiness as their_trustworthiness
from sklearn.neighbors import KNeighborsClassifier

from bertkit.errors import InputError
from bertkit.metrics import map_quality
from bertkit.metrics.map_quality import neighbour_accuracy, trustworthiness

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("block", [7, 1 << 20])
@pytest.mark.parametrize(("count", "width", "neighbours"), [(12, 3, 5), (80, 20, 1), (150, 8, 30)])
def test_trustworthiness_is_that_of_scikit_learn(
    count: int, width: int, neighbours: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_quality, "_MOST_DISTANCES", block * count)
    draws = np.random.default_rng(count)
    vectors = draws.normal(size=(count, width))
    for places in (vectors[:, :2], draws.normal(size=(count, 2))):
        right = their_trustworthiness(vectors, places, n_neighbors=neighbours)
        assert trustworthiness(vectors, places, neighbours) == pytest.approx(right, abs=1e-12)
    assert trustworthiness(vectors, vectors, neighbours) == 1.0


@pytest.mark.parametrize("neighbours", [1, 4, 10])
def test_labels_of_neighbours_are_those_of_scikit_learn(neighbours: int) -> None:
    draws = np.random.default_rng(0)
    labels = draws.integers(0, 4, 90)
    vectors = draws.normal(size=(90, 5)) + labels[:, None]
    right = KNeighborsClassifier(neighbours, algorithm="brute").fit(vectors, labels).predict(None)
    found = neighbour_accuracy(vectors, labels, neighbours)
    assert found == pytest.approx((right == labels).mean())
    assert found > 0.5  # the control: other labels are not known
    assert neighbour_accuracy(vectors, draws.permutation(labels), neighbours) < 0.45


def test_points_that_are_equal_are_neighbours_and_no_point_is_its_own() -> None:
    vectors = np.repeat(np.eye(3), 2, axis=0)
    assert neighbour_accuracy(vectors, [0, 0, 1, 1, 2, 2], 1) == 1.0
    assert neighbour_accuracy(vectors, [0, 1, 0, 1, 0, 1], 1) == 0.0


def test_too_few_points_are_refused() -> None:
    x = np.eye(6)
    for places, neighbours in ((x, 3), (x, 0), (x[:5], 1)):
        with pytest.raises(InputError, match="neighbours from 1 to less than half"):
            trustworthiness(x, places, neighbours)
    with pytest.raises(
        InputError, match="neighbours=6 of 6 vectors and 6 labels: expected as many labels, and neighbours from 1 to"
    ):
        neighbour_accuracy(x, np.zeros(6, int), 6)
