"""Linear heads as estimators of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

_Numbers = npt.NDArray[np.float64]


def unfitted(params: Mapping[str, Any]) -> BaseEstimator:
    """A logistic regression with these parameters."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(**params)


def fitted(
    weights_CD: _Numbers, bias_C: _Numbers, classes: npt.NDArray[np.generic] | None, params: Mapping[str, Any]
) -> BaseEstimator:
    """A logistic regression with these weights; ``classes`` None: one for each of labels that do not exclude others."""
    from sklearn.multioutput import MultiOutputClassifier

    if classes is None:
        both = np.array([0, 1])
        heads = MultiOutputClassifier(unfitted(params))
        parts = zip(weights_CD, bias_C, strict=True)
        heads.estimators_ = [_with(unfitted(params), row[None], np.array([bias]), both) for row, bias in parts]
        heads.classes_ = [both] * len(weights_CD)
        return heads
    if len(weights_CD) == 2:  # one row of weights, for the second class
        weights_CD, bias_C = weights_CD[1:] - weights_CD[:1], bias_C[1:] - bias_C[:1]
    return _with(unfitted(params), weights_CD, bias_C, classes)


def _with(head: Any, weights_CD: _Numbers, bias_C: _Numbers, classes: npt.NDArray[np.generic]) -> BaseEstimator:
    head.coef_, head.intercept_, head.classes_ = weights_CD, bias_C, classes
    head.n_features_in_ = weights_CD.shape[1]
    found: BaseEstimator = head
    return found
