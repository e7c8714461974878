"""Metrics of several labels equal scikit-learn's; fitted temperatures and thresholds are the best there are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax
from sklearn import metrics as sklearn_metrics
from sklearn.calibration import calibration_curve

from bertkit.errors import InputError
from bertkit.metrics.calibration import (
    best_threshold,
    best_thresholds,
    calibration_bins,
    calibration_error,
    confidences,
    cross_fit,
    fit_temperature,
    log_loss,
    probabilities_at,
)
from bertkit.metrics.multilabel import MULTILABEL_METRICS, exact_match, f1_of_labels, label_accuracy, macro_f1, micro_f1

SKLEARN = {"f1": sklearn_metrics.f1_score, "accuracy": sklearn_metrics.accuracy_score,
           "matthews": sklearn_metrics.matthews_corrcoef}  # fmt: skip


def test_metrics_of_several_labels_equal_scikit_learn() -> None:
    for seed in range(30):
        check_two_or_more(np.random.default_rng(seed))


def check_two_or_more(generator: np.random.Generator) -> None:
    """scikit-learn takes one column for a binary problem and then scores the positive class alone."""
    rows, labels = int(generator.integers(1, 12)), int(generator.integers(2, 6))
    rate = generator.choice([0.0, 0.2, 0.5, 1.0], 2)
    predicted, right = ((generator.random((rows, labels)) < share).astype(int) for share in rate)
    for average, ours in (("micro", micro_f1), ("macro", macro_f1)):
        theirs = sklearn_metrics.f1_score(right, predicted, average=average, zero_division=np.nan)
        assert abs(ours(predicted, right) - np.nan_to_num(theirs)) < 1e-12
    each = sklearn_metrics.f1_score(right, predicted, average=None, zero_division=np.nan)
    np.testing.assert_allclose(f1_of_labels(predicted, right), each, atol=1e-12)
    assert abs(exact_match(predicted, right) - sklearn_metrics.accuracy_score(right, predicted)) < 1e-12
    assert abs(label_accuracy(predicted, right) - (1 - sklearn_metrics.hamming_loss(right, predicted))) < 1e-12


@pytest.mark.campaign
def test_50000_cases_equal_scikit_learn() -> None:
    for seed in range(50_000):
        check_two_or_more(np.random.default_rng(seed))


@pytest.mark.parametrize("name", MULTILABEL_METRICS)
def test_what_cannot_be_scored(name: str) -> None:
    metric = MULTILABEL_METRICS[name]
    assert metric([[1, 0]], [[1, 0]]) == 1.0
    for predicted, right in (([1, 0], [1, 0]), ([[2]], [[1]]), ([[1, 0]], [[1]]), (np.zeros((0, 2)), np.zeros((0, 2)))):
        with pytest.raises(InputError):
            metric(predicted, right)
    with pytest.raises(InputError, match="predictions must be 0 or 1, got 2"):
        metric([[2, 0]], [[1, 0]])


def random_logits(seed: int, rows: int = 300, labels: int = 4, scale: float = 4.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a model that is too sure by ``scale``, and labels drawn from its true probabilities."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(rows, labels)) * 1.5
    right = np.array([generator.choice(labels, p=np.exp(log_softmax(row))) for row in logits])
    return logits * scale, right


def test_bins_equal_scikit_learn() -> None:
    for seed in range(20):
        logits, right = random_logits(seed)
        sure, correct = confidences(probabilities_at(logits, 3.0), right)
        bins = calibration_bins(sure, correct, num_bins=10)
        accuracy, confidence = calibration_curve(correct, sure, n_bins=10, strategy="uniform")
        np.testing.assert_allclose(bins.accuracy, accuracy, atol=1e-12)
        np.testing.assert_allclose(bins.confidence, confidence, atol=1e-12)
        assert bins.count.sum() == len(right)


def test_the_calibration_error_of_a_few_rows_by_hand() -> None:
    shares = [[0.9, 0.1], [0.95, 0.05], [0.4, 0.6], [0.2, 0.8]]
    # Bins of a tenth: (0.8, 0.9]: 0.9 right; (0.9, 1.0]: 0.95 wrong; (0.5, 0.6]: 0.6 right; (0.7, 0.8]: 0.8 wrong.
    assert calibration_error(shares, [0, 1, 1, 0], num_bins=10) == pytest.approx((0.1 + 0.95 + 0.4 + 0.8) / 4)
    assert calibration_error([[1.0, 0.0]], [0]) == 0.0
    with pytest.raises(InputError):
        calibration_bins([1.2], [True])


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
def test_the_temperature_undoes_what_made_the_logits_too_sure(scale: float) -> None:
    logits, right = random_logits(0, rows=4000, scale=scale)
    found = fit_temperature(logits, right)
    assert found == pytest.approx(scale, rel=0.1)
    best = minimize_scalar(lambda t: -log_softmax(logits / t, axis=1)[np.arange(len(right)), right].mean(),
                           bracket=(scale / 3, scale, 3 * scale))  # fmt: skip
    assert found == pytest.approx(best.x, rel=1e-4)
    if scale != 1.0:  # control: without it the probabilities do not mean what they say
        before, after = (calibration_error(probabilities_at(logits, t), right) for t in (1.0, found))
        assert after < before / 2


def test_the_temperature_of_labels_that_do_not_exclude_each_other() -> None:
    generator = np.random.default_rng(1)
    logits = generator.normal(size=(3000, 3))
    right = generator.random(logits.shape) < expit(logits)
    assert fit_temperature(5 * logits, right) == pytest.approx(5.0, rel=0.1)
    assert log_loss(logits, right) == pytest.approx(sklearn_metrics.log_loss(right.ravel(), expit(logits).ravel()))
    np.testing.assert_allclose(probabilities_at(logits, 2.0, several=True), expit(logits / 2), atol=1e-12)


def test_where_no_temperature_makes_a_difference_it_is_one() -> None:
    right = np.array([0, 1, 0, 1])
    for margin in (0.0, 400.0):
        logits = margin * np.eye(2)[right]
        assert fit_temperature(logits, right) == 1.0


def test_where_every_row_is_right_the_temperature_is_one() -> None:
    """The lowest one would have the least loss, and make every probability of a new row 0 or 1."""
    assert fit_temperature([[2.0, -2.0], [-2.0, 2.0]], [0, 1]) == 1.0
    assert fit_temperature([[2.0, -2.0], [-2.0, 2.0]], [[1, 0], [0, 1]]) == 1.0


def test_temperatures_stay_in_bounds_and_bad_logits_are_refused() -> None:
    certain = np.array([[9.0, 0.0], [0.0, 9.0]])
    assert 0.05 <= fit_temperature([*[[0.1, 0.0]] * 99, [0.0, 0.01]], [0] * 100) < 0.5
    assert 19.9 <= fit_temperature(certain, [1, 0]) <= 20.0
    with pytest.raises(InputError):
        fit_temperature(np.full((1, 2), np.nan), [0])


def check_threshold(generator: np.random.Generator, metric: str) -> None:
    rows = int(generator.integers(1, 30))
    scores = np.round(generator.random(rows), int(generator.integers(1, 4)))  # many ties
    right = generator.random(rows) < generator.choice([0.1, 0.5, 0.9])
    found = best_threshold(scores, right, metric)
    if not right.any() or right.all():
        assert found == 0.5
        return
    candidates = np.concatenate([[0.0, 2.0], scores, scores + 1e-9])
    best = max(SKLEARN[metric](right, scores >= threshold) for threshold in candidates)
    assert SKLEARN[metric](right, scores >= found) == pytest.approx(best, abs=1e-9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("metric", SKLEARN)
def test_no_threshold_is_better(metric: str) -> None:
    for seed in range(10):
        check_threshold(np.random.default_rng(seed), metric)


def test_thresholds_of_several_labels_and_of_neighbouring_numbers() -> None:
    scores = np.array([[0.2, 0.9], [0.3, 0.8], [0.4, 0.1]])
    right = np.array([[0, 1], [1, 0], [1, 0]])
    np.testing.assert_allclose(best_thresholds(scores, right), [0.25, 0.85])
    low = 0.3
    high = np.nextafter(low, 1.0)
    assert best_threshold([low, high], [False, True]) == high
    assert best_threshold([0.9, 0.9], [True, False]) == pytest.approx(0.5, abs=0.06), "nearest to a half"
    with pytest.raises(InputError, match="chosen for f1, accuracy, matthews"):
        best_threshold([0.1], [True], "spearman")


def test_cross_fit_never_shows_a_row_its_own_fit() -> None:
    seen: list[np.ndarray] = []

    def fit_and_apply(fit_on: np.ndarray, apply_to: np.ndarray) -> np.ndarray:
        assert not set(fit_on) & set(apply_to)
        seen.append(apply_to)
        return apply_to * 10

    assert cross_fit(23, fit_and_apply).tolist() == [row * 10 for row in range(23)]
    assert sorted(np.concatenate(seen).tolist()) == list(range(23))
    assert len(seen) == 5
    assert len(cross_fit(2, fit_and_apply)) == 2
