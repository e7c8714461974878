"""Similarities of vectors by the formulas, one pair at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bertkit import InputError
from bertkit.metrics import vector_similarity
from bertkit.metrics.vector_similarity import paired_similarities, similarities, unit_vectors

RANDOM = np.random.default_rng(0)
A, B = (RANDOM.normal(size=(count, 5)).astype(np.float32) for count in (7, 3))
FORMULAS = {
    "cosine": lambda a, b: sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b),
    "dot": lambda a, b: sum(x * y for x, y in zip(a, b, strict=True)),
    "euclidean": lambda a, b: -math.dist(a, b),
    "manhattan": lambda a, b: -sum(abs(x - y) for x, y in zip(a, b, strict=True)),
}


@pytest.mark.parametrize("measure", FORMULAS)
def test_by_the_formula(measure, monkeypatch):
    expected = [[FORMULAS[measure](a, b) for b in B.tolist()] for a in A.tolist()]
    np.testing.assert_allclose(similarities(A, B, measure), expected, atol=1e-5)
    np.testing.assert_allclose(paired_similarities(A[:3], B, measure), np.diag(expected[:3]), atol=1e-5)
    assert paired_similarities(A[1], B[1], measure) == pytest.approx(expected[1][1], abs=1e-5)
    assert similarities(A[0], B, measure).shape == (1, 3)
    assert similarities(np.zeros((0, 5), np.float32), B, measure).shape == (0, 3)
    monkeypatch.setattr(vector_similarity, "_MAX_BYTES", 100)  # two rows at a time
    np.testing.assert_allclose(similarities(A, B, measure), expected, atol=1e-5)


def test_a_vector_of_zeros_stays_one():
    np.testing.assert_array_equal(unit_vectors(np.zeros((2, 3), np.float32)), np.zeros((2, 3)))


def test_what_cannot_be_compared():
    with pytest.raises(InputError, match=r"shapes \(A, D\) and \(B, D\), got \(7, 5\) and \(3, 4\)"):
        similarities(A, B[:, :4])
    with pytest.raises(InputError, match="same shape"):
        paired_similarities(A, B)
    with pytest.raises(InputError, match=r"must be floats, got int8.*restored"):
        similarities(A.astype(np.int8), A)
    with pytest.raises(InputError, match="compared by cosine, dot, euclidean, manhattan, not by 'cos'"):
        similarities(A, B, "cos")
