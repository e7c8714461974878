"""Vectors in a plane: the methods against what they are known by, and what cannot be placed."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.manifold import trustworthiness

from bertkit.errors import ConfigError, InputError, MissingExtraError
from bertkit.insight.projection import Method, check_method, project
from bertkit.metrics.map_quality import neighbour_accuracy
from bertkit.ragged import Floats

pytestmark = pytest.mark.slow


def clouds(count: int = 90) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Points in three directions, and the number of each one's direction."""
    draws = np.random.default_rng(1)
    labels = np.arange(count) % 3
    return (4 * np.eye(3, 12)[labels] + 0.5 * draws.normal(size=(count, 12))).astype(np.float32), labels


def test_principal_components_are_the_singular_vectors() -> None:
    vectors, _ = clouds()
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    centred = units - units.mean(axis=0)
    left, scales, _ = np.linalg.svd(centred, full_matrices=False)
    found = project(100 * vectors)  # lengths do not count
    np.testing.assert_allclose(np.abs(found.places), np.abs(left[:, :2] * scales[:2]), atol=1e-5)
    np.testing.assert_allclose(found.variance, (scales**2 / np.square(scales).sum())[:10], atol=1e-6)
    assert found.trustworthiness == pytest.approx(trustworthiness(units, found.places), abs=1e-9)
    assert found.axes[0] == f"PC 1 ({100 * found.variance[0]:.1f} % of variance)"


@pytest.mark.parametrize("method", ["pca", "tsne", "umap"])
def test_what_is_apart_stays_apart_and_a_seed_repeats_it(method: Method) -> None:
    if method == "umap":
        pytest.importorskip("umap")
    vectors, labels = clouds()
    found, again, other = (project(vectors, method, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(found.places, again.places)
    assert np.array_equal(found.places, other.places) == (method != "umap")
    assert neighbour_accuracy(found.places, labels, 5) > 0.95
    assert found.trustworthiness == pytest.approx(
        trustworthiness(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), found.places), abs=1e-6
    )
    assert neighbour_accuracy(np.random.default_rng(0).permutation(found.places), labels, 5) < 0.6  # the control


def test_the_perplexity_is_lowered_only_if_nobody_asked_for_one() -> None:
    vectors, _ = clouds(31)
    found = project(vectors, "tsne")
    assert found.settings == {"perplexity": 10.0}
    assert found.notes == ["perplexity 10 in place of 30, because there are only 31 texts"]
    asked = project(vectors, "tsne", perplexity=25)
    assert (asked.settings, asked.notes) == ({"perplexity": 25}, [])
    with pytest.raises(InputError, match="perplexity=31 must be less than the number of texts, 31"):
        project(vectors, "tsne", perplexity=31)
    for wrong, told in ((0.5, "from 1"), (float("inf"), "from 1"), (float("nan"), "from 1")):
        with pytest.raises(ConfigError, match=told):
            project(vectors, "tsne", perplexity=wrong)
    with pytest.raises(ConfigError, match="perplexity=5 is for method='tsne' only"):
        project(vectors, "pca", perplexity=5)


@pytest.mark.parametrize(("method", "fewest"), [("pca", 3), ("tsne", 4)])
def test_the_fewest_points(method: Method, fewest: int) -> None:
    vectors, _ = clouds()
    found = project(vectors[:fewest], method)
    assert found.places.shape == (fewest, 2)
    assert np.isfinite(found.places).all()
    with pytest.raises(InputError, match=f"a map by {method} needs {fewest} pieces at least, got {fewest - 1}"):
        project(vectors[: fewest - 1], method, what="piece")


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_vectors_on_a_line_and_vectors_that_are_the_same(method: Method) -> None:
    line = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [0, 1]], np.float32)
    found = project(line, method)
    assert np.isfinite(found.places).all()
    assert found.variance == pytest.approx([1.0, 0.0])
    with pytest.raises(InputError, match="the vectors of all 5 texts are the same"):
        project(np.ones((5, 2), np.float32) * np.arange(1, 6)[:, None], method)


def test_methods_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"method must be one of pca, tsne, umap, got 'tsn'.*tsne"):
        check_method("tsn", None)
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(MissingExtraError, match=r"bertkit\[umap\]"):
        check_method("umap", None)
