"""Logits to answers: against scipy and torch, at extreme values, with ties."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bertkit.errors import InputError
from bertkit.metrics.probabilities import predictions_of, sigmoid, softmax, top_k

LOGITS = hnp.arrays(
    np.float64, hnp.array_shapes(min_dims=2, max_dims=3, max_side=7), elements=st.floats(-1e4, 1e4, width=64)
)


@given(LOGITS)
def test_equal_to_scipy(logits: np.ndarray) -> None:
    np.testing.assert_allclose(softmax(logits), scipy.special.softmax(logits, axis=-1), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(softmax(logits, axis=0), scipy.special.softmax(logits, axis=0), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(sigmoid(logits), scipy.special.expit(logits), rtol=1e-12, atol=1e-300)


def test_extreme_logits() -> None:
    with np.errstate(all="raise", under="ignore"):
        assert softmax([[1e30, -1e30, 0.0]]).tolist() == [[1.0, 0.0, 0.0]]
        assert sigmoid([1e30, -1e30, 0.0]).tolist() == [1.0, 0.0, 0.5]
    assert softmax(np.zeros((2, 4), np.float16)).dtype == np.float32
    assert sigmoid([0]).dtype == np.float32


SCORES = hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 80)), elements=st.integers(-9, 9))


@given(SCORES, st.integers(1, 12))
def test_top_k_is_the_head_of_a_stable_sort(scores: np.ndarray, k: int) -> None:
    indices, values = top_k(scores, k)
    assert indices.tolist() == [sorted(range(len(row)), key=lambda i: -row[i])[:k] for row in scores.tolist()]
    assert values.tolist() == [sorted(row, reverse=True)[:k] for row in scores.tolist()]


def test_top_k_of_a_vocabulary_equals_torch() -> None:
    scores = np.random.default_rng(0).permutation(5 * 30522).reshape(5, 30522).astype(np.float64)
    indices, values = top_k(scores, 5)
    expected = torch.topk(torch.from_numpy(scores), 5)
    assert np.array_equal(indices, expected.indices.numpy())
    assert np.array_equal(values, expected.values.numpy())
    with pytest.raises(InputError, match="at least 1"):
        top_k(scores, 0)


def test_predictions() -> None:
    assert predictions_of([[1.0, 3.0, 3.0], [0.0, -1.0, -1.0]]).tolist() == [1, 0]
    assert predictions_of([[1.5], [2.5]]).tolist() == [1.5, 2.5]
    assert predictions_of([[1.5]], "regression").tolist() == [1.5]
