"""The similarity of layers against the definition of its estimate, and what must not change it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from bertkit.errors import InputError
from bertkit.metrics.layer_similarity import layer_similarity

pytestmark = pytest.mark.slow

Floats = npt.NDArray[np.float64]
GENERATOR = np.random.default_rng(0)
#: Three layers of different widths: the second has much of the first, the third nothing.
FIRST = GENERATOR.normal(size=(40, 12)) * np.arange(1, 13)
SECOND = FIRST[:, :9] @ GENERATOR.normal(size=(9, 7)) + GENERATOR.normal(size=(40, 7))
THIRD = GENERATOR.normal(size=(40, 90))


def hsic(k: Floats, m: Floats) -> float:
    """Song et al. 2012, equation 5, term by term."""
    k, m, n = k.copy(), m.copy(), len(k)
    np.fill_diagonal(k, 0)
    np.fill_diagonal(m, 0)
    ones = np.ones(n)
    middle = (ones @ k @ ones) * (ones @ m @ ones) / ((n - 1) * (n - 2))
    return float((np.trace(k @ m) + middle - 2 / (n - 2) * (ones @ k @ m @ ones)) / (n * (n - 3)))


def cka(x: Floats, y: Floats) -> float:
    k, m = x @ x.T, y @ y.T
    return float(hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m)))


def test_the_similarity_is_the_ratio_of_unbiased_hsics() -> None:
    found = layer_similarity([FIRST, SECOND, THIRD], [SECOND, FIRST])
    right = [[cka(x, y) for y in (SECOND, FIRST)] for x in (FIRST, SECOND, THIRD)]
    np.testing.assert_allclose(found, right, atol=1e-9)
    assert found[0, 0] > 0.2


def test_what_does_not_change_it_and_what_does() -> None:
    rotation = np.linalg.qr(GENERATOR.normal(size=(12, 12)))[0]
    found = layer_similarity([FIRST, 3.7 * FIRST @ rotation - 5.0, FIRST[:, ::-1]], [FIRST, SECOND])
    np.testing.assert_allclose(found[:, 0], 1.0, atol=1e-9)
    np.testing.assert_allclose(found[1:, 1], found[0, 1], atol=1e-9)
    skewed = FIRST @ np.diag(np.linspace(9, 0.1, 12))  # linear, but no rotation
    assert layer_similarity([skewed], [FIRST])[0, 0] < 0.9


def test_layers_that_have_nothing_to_do_with_each_other_are_near_zero() -> None:
    wide, other = GENERATOR.normal(size=(2, 40, 300))
    assert abs(layer_similarity([wide], [other])[0, 0]) < 0.1
    centered = [x - x.mean(axis=0) for x in (wide, other)]
    biased = np.linalg.norm(centered[0].T @ centered[1]) ** 2
    biased /= np.linalg.norm(centered[0].T @ centered[0]) * np.linalg.norm(centered[1].T @ centered[1])
    assert biased > 0.8  # what the usual estimate would say


def test_layers_without_a_similarity() -> None:
    found = layer_similarity([np.ones((6, 3)), FIRST[:6]], [FIRST[:6]])
    assert np.isnan(found[0, 0])
    assert found[1, 0] == pytest.approx(1.0)
    with pytest.raises(InputError, match="4 examples or more"):
        layer_similarity([FIRST[:3]], [FIRST[:3]])
    with pytest.raises(InputError, match="the same examples"):
        layer_similarity([FIRST], [FIRST[:30]])
