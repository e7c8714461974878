"""ROC and precision-recall curves beside scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from bertkit.errors import InputError
from bertkit.metrics.threshold_curves import threshold_curve


@pytest.mark.parametrize("digits", [1, 2, 12])
def test_points_and_areas_equal_those_of_scikit_learn(digits: int) -> None:
    generator = np.random.default_rng(digits)
    right = generator.random(200) < 0.3
    scores = np.round(generator.random(200) + 0.3 * right, digits)  # few digits: many ties
    curve = threshold_curve(scores, right)
    false, true, thresholds = roc_curve(right, scores, drop_intermediate=False)
    np.testing.assert_allclose(curve.false_rate, false[1:], atol=1e-12)
    np.testing.assert_allclose(curve.true_rate, true[1:], atol=1e-12)
    np.testing.assert_array_equal(curve.thresholds, thresholds[1:])
    precision, recall, _ = precision_recall_curve(right, scores)
    np.testing.assert_allclose(curve.precision[::-1], precision[:-1], atol=1e-12)
    np.testing.assert_allclose(curve.true_rate[::-1], recall[:-1], atol=1e-12)
    assert curve.area == pytest.approx(roc_auc_score(right, scores), abs=1e-12)
    assert curve.average_precision == pytest.approx(average_precision_score(right, scores), abs=1e-12)


@pytest.mark.parametrize("right", [[True, True], [False, False], []])
def test_rows_of_one_kind_have_no_curve(right: list[bool]) -> None:
    with pytest.raises(InputError, match="no curve"):
        threshold_curve(np.zeros(len(right)), right)
