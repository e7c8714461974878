"""Metrics equal scikit-learn's and scipy's on random cases, degenerate ones included."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from bertkit.metrics import scores as metrics


def label_cases(count: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Predictions and references: 1 to 60 rows, 1 to 6 labels, from independent to nearly equal, constants too."""
    for case in range(count):
        rng = np.random.default_rng([seed, case])
        rows, labels = int(rng.integers(1, 61)), int(rng.integers(1, 7))
        right = rng.integers(0, labels, rows)
        keep = rng.random(rows) < rng.choice([0.0, 0.5, 0.9, 1.0])
        predicted = np.where(keep, right, rng.integers(0, labels, rows))
        if rng.random() < 0.1:
            predicted = np.full(rows, rng.integers(0, labels))
        if rng.random() < 0.1:
            right = np.full(rows, rng.integers(0, labels))
        yield predicted, right


def number_cases(count: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Two sequences of numbers: 2 to 60 rows, with ties, constants, tiny and huge scales, and big offsets."""
    for case in range(count):
        rng = np.random.default_rng([seed, case])
        rows = int(rng.integers(2, 61))
        x = rng.normal(size=rows)
        y = rng.choice([0.0, 0.5, 1.0, -1.0]) * x + rng.choice([0.0, 0.01, 1.0]) * rng.normal(size=rows)
        if rng.random() < 0.4:
            x, y = np.round(x, 1), np.round(y)
        if rng.random() < 0.1:
            x = np.full(rows, x[0])
        scale = 10.0 ** rng.integers(-20, 20)
        yield (x + rng.choice([0.0, 30.0])) * scale, y / scale


def compare_labels(count: int, seed: int) -> int:
    worst = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for predicted, right in label_cases(count, seed):
            size = int(max(predicted.max(), right.max())) + 1
            expected = {
                "accuracy": sklearn.metrics.accuracy_score(right, predicted),
                "f1": sklearn.metrics.f1_score(right, predicted, labels=[1], average="macro", zero_division=0),
                "macro_f1": sklearn.metrics.f1_score(right, predicted, average="macro", zero_division=0),
                "matthews": sklearn.metrics.matthews_corrcoef(right, predicted),
            }
            for name, value in expected.items():
                worst = max(worst, abs(metrics.METRICS[name](predicted, right) - value))
            cells = sklearn.metrics.confusion_matrix(right, predicted, labels=range(size))
            assert np.array_equal(metrics.confusion_matrix(predicted, right), cells)
    assert worst < 1e-12, worst
    return count


def compare_numbers(count: int, seed: int) -> int:
    worst, constants = 0.0, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x, y in number_cases(count, seed):
            for ours, theirs in ((metrics.pearson, scipy.stats.pearsonr), (metrics.spearman, scipy.stats.spearmanr)):
                got, expected = ours(x, y), float(theirs(x, y).statistic)
                assert math.isnan(got) == math.isnan(expected), (x, y, got, expected)
                if math.isnan(got):
                    constants += 1
                else:
                    worst = max(worst, abs(got - expected))
            assert np.array_equal(metrics.ranks(x), scipy.stats.rankdata(x))
    assert worst < 1e-9, worst
    assert constants > 0, "the sweep must contain constants"
    return count


def test_label_metrics_equal_scikit_learn() -> None:
    assert compare_labels(60, seed=1) == 60


def test_number_metrics_equal_scipy() -> None:
    assert compare_numbers(200, seed=2) == 200


@pytest.mark.campaign
def test_campaign_label_metrics_equal_scikit_learn() -> None:
    assert compare_labels(50_000, seed=3) == 50_000


@pytest.mark.campaign
def test_campaign_number_metrics_equal_scipy() -> None:
    assert compare_numbers(50_000, seed=4) == 50_000
