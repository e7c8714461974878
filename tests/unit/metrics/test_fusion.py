"""Reciprocal rank fusion against sums of exact fractions."""

from fractions import Fraction

import numpy as np

from bertkit.metrics.fusion import fused


def test_sums_of_all_rankings_decide():
    rankings = [[7, 3, 9], [3, 4], [9, 3]]
    exact = {
        number: sum((Fraction(1, 61 + r.index(number)) for r in rankings if number in r), Fraction(0))
        for number in (3, 4, 7, 9)
    }
    numbers, scores = fused(rankings, 10)
    assert numbers.tolist() == sorted(exact, key=exact.__getitem__, reverse=True) == [3, 9, 7, 4]
    assert np.allclose(scores, [float(exact[number]) for number in numbers.tolist()], rtol=1e-7)


def test_a_document_of_two_rankings_beats_the_first_of_one():
    assert fused([[1, 2], [3, 2]], 1)[0].tolist() == [2]  # 2 / 62 > 1 / 61


def test_equal_sums_are_ordered_by_number():
    assert fused([[5, 2], [2, 5]], 2)[0].tolist() == [2, 5]


def test_nothing_found():
    numbers, scores = fused([[], []], 3)
    assert (numbers.dtype, scores.dtype, len(numbers)) == (np.int64, np.float32, 0)
