"""The weighted sum of standardized scores, beside scipy's z-scores."""

import numpy as np
import pytest
from scipy.stats import zscore

from bertkit.metrics.fusion import SHARE, best_of, mixed, standardized


def test_standardized_is_scipys_zscore() -> None:
    scores = np.random.default_rng(0).normal(5.0, 3.0, (4, 50)).astype(np.float32)
    assert np.allclose(standardized(scores), zscore(scores.astype(np.float64), axis=1), atol=1e-6)


@pytest.mark.parametrize("value", [0.0, 0.1, -7e4])
def test_equal_scores_decide_nothing(value: float) -> None:
    assert (standardized(np.full((2, 33), value, np.float32)) == 0).all()
    assert standardized(np.zeros((2, 0))).shape == (2, 0)


def test_a_share_of_all_is_one_search_alone() -> None:
    chance = np.random.default_rng(1)
    vectors, words = chance.normal(size=(3, 20)), chance.exponential(size=(3, 20))
    for share, only in ((1.0, vectors), (0.0, words)):
        assert (np.argsort(mixed(vectors, words, share), axis=1) == np.argsort(only, axis=1)).all()


def test_units_of_scores_do_not_matter() -> None:
    chance = np.random.default_rng(2)
    vectors, words = chance.normal(size=(3, 20)), chance.exponential(size=(3, 20))
    assert np.allclose(mixed(vectors, words, 0.6), mixed(100 * vectors - 7, words / 9, 0.6), atol=1e-5)


def test_a_word_of_one_text_only_decides() -> None:
    """Against every order by vectors, where there are a thousand texts."""
    words = np.zeros((1, 1000))
    words[0, 42] = 3.0
    for seed in range(20):
        vectors = np.random.default_rng(seed).normal(size=(1, 1000))
        assert mixed(vectors, words, SHARE).argmax() == 42


@pytest.mark.parametrize("k", [1, 3, 7, 30])
def test_best_of_is_a_stable_sort(k: int) -> None:
    scores = np.random.default_rng(3).integers(0, 5, 20).astype(np.float32)
    expected = sorted(range(20), key=lambda number: (-scores[number], number))[:k]
    numbers, found = best_of(scores, k)
    assert numbers.tolist() == expected
    assert found.tolist() == scores[expected].tolist()
