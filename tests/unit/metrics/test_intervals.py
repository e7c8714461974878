"""Intervals of scores: how often they hold the truth, at a bound too, and of rows that say the same."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bertkit.metrics.intervals import (
    bootstrap_draws,
    bootstrap_means,
    drawn_means,
    interval_of,
    interval_text,
    middle_of,
)


@pytest.mark.slow
def test_the_interval_covers_the_true_value_as_often_as_it_says() -> None:
    """Accuracy of 200 coin tosses at 0.8: 95 % intervals of 300 samples hold 0.8 in about 95 % of them."""
    generator = np.random.default_rng(0)
    draws = bootstrap_draws(200, 400)
    held = 0
    for _ in range(300):
        right = generator.random(200) < 0.8
        low, high = interval_of(drawn_means(right, draws).tolist(), 200, (0.0, 1.0)) or (0, 0)
        held += low <= 0.8 <= high
    assert 0.90 < held / 300 < 0.98


def test_intervals_are_percentiles_and_equal_scipys() -> None:
    values = np.random.default_rng(1).normal(size=1000)
    assert middle_of(values.tolist()) == pytest.approx(np.percentile(values, [2.5, 97.5]).tolist())
    right = np.random.default_rng(2).random(400) < 0.7
    ours = interval_of(drawn_means(right, bootstrap_draws(400)).tolist(), 400, (0.0, 1.0))
    theirs = stats.bootstrap((right,), np.mean, n_resamples=1000, method="percentile", rng=3).confidence_interval
    assert ours == pytest.approx([theirs.low, theirs.high], abs=0.01)
    assert interval_of(None, 9, None) is interval_of([], 9, None) is None


def test_seeds_that_differ_widen_the_interval() -> None:
    narrow = [[0.80, 0.81, 0.79, 0.80] * 50] * 3
    wide = [[score + value for value in row] for score, row in zip((-0.1, 0.0, 0.1), narrow, strict=True)]
    (a, b), (c, d) = middle_of(bootstrap_means(narrow)), middle_of(bootstrap_means(wide))
    assert b - a < 0.03 < d - c
    assert bootstrap_means(narrow) == pytest.approx(narrow[0])


@pytest.mark.parametrize("rows", [1, 4, 9, 200])
def test_a_share_at_its_bound_has_the_interval_of_clopper_and_pearson(rows: int) -> None:
    for right, bounds in ((rows, (0.0, 1.0)), (0, (0.0, 1.0)), (rows, (0.0, 100.0)), (0, (0.0, 100.0))):
        values = drawn_means(np.full(rows, bounds[right > 0]), bootstrap_draws(rows))
        theirs = stats.binomtest(right, rows).proportion_ci(0.95, "exact")
        ours = interval_of(values.tolist(), rows, bounds)
        assert ours == pytest.approx([theirs.low * bounds[1], theirs.high * bounds[1]], abs=1e-9)


def test_other_scores_without_width_have_none() -> None:
    assert interval_of([1.0] * 100, 9, None) is None  # an F1, of which no share is known
    assert interval_of([0.5] * 100, 9, (0.0, 1.0)) is None  # each row has half a point
    assert interval_of([0.5, *[1.0] * 100], 9, None) is None
    assert interval_of([0.5, 0.6] * 50, 9, None) == [0.5, 0.6]
    assert (interval_text(None), interval_text([]), interval_text([0.5, 1.0], "+")) == (
        "too few rows", "too few rows", "+0.5000 to +1.0000",
    )  # fmt: skip


@pytest.mark.slow
def test_rows_that_say_the_same_are_drawn_together() -> None:
    """Every text four times is no more evidence than once: the interval holds the truth as often as it says."""
    generator = np.random.default_rng(0)
    groups = np.arange(50).reshape(50, 1) + 50 * np.arange(4)
    together, alone = bootstrap_draws(groups.tolist(), 400), bootstrap_draws(200, 400)
    assert all(np.isin(draw % 50, np.unique(draw % 50)).all() for draw in together)
    assert {len(draw) for draw in together} == {200}
    held = np.zeros(2)
    for _ in range(100):
        right = np.tile(generator.random(50) < 0.8, 4).astype(float)
        for number, draws in enumerate((together, alone)):
            low, high = middle_of(drawn_means(right, draws).tolist())
            held[number] += low <= 0.8 <= high
    assert 0.88 < held[0] / 100 < 0.99
    assert held[1] / 100 < 0.75  # a control: as if all rows were independent


def test_groups_of_one_are_rows() -> None:
    for ours, theirs in zip(bootstrap_draws([[0], [1], [2]], 20), bootstrap_draws(3, 20), strict=True):
        assert ours.tolist() == theirs.tolist()


def test_rows_without_a_value_do_not_count() -> None:
    values = np.array([1.0, np.nan, 0.0, np.nan])
    draws = [np.array(draw) for draw in ([0, 1, 1, 2], [0, 0, 2, 1], [1, 3, 1, 3])]
    assert drawn_means(values, draws).tolist() == [0.5, 2 / 3, 0.5]
