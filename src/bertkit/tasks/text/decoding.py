"""From logits to labels under a decision that was made on dev: a temperature, thresholds. In numpy; for evaluation,
files and pipelines alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bertkit.errors import CheckpointError
from bertkit.metrics.calibration import (
    Floats,
    best_threshold,
    best_thresholds,
    calibration_error,
    cross_fit,
    fit_temperature,
    log_loss,
    probabilities_at,
)
from bertkit.metrics.probabilities import predictions_of, scores_of

#: Metrics that a threshold between two labels can be chosen for.
TUNABLE = ("f1", "accuracy", "matthews")


@dataclass(frozen=True, slots=True)
class LabelDecision:
    """How logits of C labels become probabilities and labels.

    temperature: what logits are divided by.
    thresholds: from which probability on a label is given, one for each of several labels that do not exclude each
        other; of two labels that do, the one of the second. None: half of the probability, or the likeliest label.
    """

    temperature: float = 1.0
    thresholds: tuple[float, ...] | None = None

    @classmethod
    def of(cls, decision: Mapping[str, Any], names: Sequence[str]) -> LabelDecision:
        """What ``decision.json`` says for labels of these names.

        Raises:
            CheckpointError: it is of other labels, or holds something else than numbers.
        """
        given: Any = decision.get("thresholds")
        try:
            temperature = float(decision.get("temperature", 1.0))
            thresholds = None if given is None else tuple(float(given[name]) for name in names if name in given)
        except (TypeError, ValueError, AttributeError):
            raise CheckpointError(f"the decision of this model cannot be read: {dict(decision)!r:.200}") from None
        if thresholds is not None and len(thresholds) not in (len(names), 1 if len(names) == 2 else -1):
            raise CheckpointError(
                f"the decision of this model is of the labels {list(given)}, the model has {list(names)}"
            )
        return cls(temperature, thresholds)

    def probabilities(self, logits: npt.ArrayLike, *, several: bool) -> npt.NDArray[np.floating]:
        """``(n, C)`` of logits ``(n, C)``; ``several``: of labels that do not exclude each other."""
        if self.temperature == 1.0:
            return scores_of(logits, "multi_label_classification" if several else "single_label_classification")
        return probabilities_at(logits, self.temperature, several=several)

    def labels(self, logits: npt.ArrayLike, *, several: bool) -> npt.NDArray[np.number]:
        """Label numbers int64 ``(n,)``, or for several labels a row 1 and 0, int64 ``(n, C)``."""
        if several:
            if self.thresholds is None:
                return (self.probabilities(logits, several=True) >= 0.5).astype(np.int64)
            exact = probabilities_at(logits, self.temperature, several=True)  # as the thresholds were chosen
            return (exact >= np.asarray(self.thresholds)).astype(np.int64)
        if self.thresholds is None:
            return predictions_of(logits, "single_label_classification")
        return (probabilities_at(logits, self.temperature)[:, 1] >= self.thresholds[0]).astype(np.int64)


def decide_labels(
    logits: npt.NDArray[np.floating],
    labels: npt.NDArray[np.number],
    names: Sequence[str],
    *,
    metric: str,
    calibrate: bool,
    tune: bool,
) -> dict[str, Any]:
    """Fit a decision on labelled rows, and say what it is worth on rows that it was not fitted on.

    Args:
        logits: ``(n, C)``.
        labels: ``(n,)`` label numbers, or 1 and 0 of shape ``(n, C)``.
        names: of the C labels.
        metric: what a threshold between two labels is chosen for; of several labels a row each has the best F1.
        calibrate: fit a temperature.
        tune: choose thresholds, where there are two labels and a metric of :data:`TUNABLE`, or several labels a row.

    Returns:
        For ``decision.json``: ``temperature``, ``thresholds`` (by label), and under ``measured`` the calibration error
        and the log loss as trained, fitted, and cross-fitted: each fifth of the rows by a fit on the others.
    """
    found: dict[str, Any] = {}
    if calibrate:
        found["temperature"] = fit_temperature(logits, labels)
        found["measured"] = _measured(logits, labels, found["temperature"])
    thresholds = fit_thresholds(logits, labels, metric, found.get("temperature", 1.0)) if tune else None
    if thresholds is not None:
        tuned = names if labels.ndim == 2 else names[1:]
        found["thresholds"] = dict(zip(tuned, thresholds.tolist(), strict=True))
    return found


def fit_thresholds(
    logits: npt.NDArray[np.floating], labels: npt.NDArray[np.number], metric: str, temperature: float = 1.0
) -> Floats | None:
    """The best thresholds, ``(C,)`` or of two labels ``(1,)``; None where none can be chosen; see
    :func:`decide_labels`.
    """
    if labels.ndim == 2:
        return best_thresholds(probabilities_at(logits, temperature, several=True), labels)
    if logits.shape[1] == 2 and metric in TUNABLE:
        return np.array([best_threshold(probabilities_at(logits, temperature)[:, 1], labels == 1, metric)])
    return None


def cross_fitted_labels(
    logits: npt.NDArray[np.floating], labels: npt.NDArray[np.number], metric: str
) -> npt.NDArray[np.number]:
    """Labels by thresholds that were chosen on other rows, as :meth:`LabelDecision.labels` gives them.

    Thresholds do not depend on a temperature: probabilities of one label keep their order.
    """
    several = labels.ndim == 2

    def fit_and_apply(fit_on: npt.NDArray[np.int64], apply_to: npt.NDArray[np.int64]) -> npt.NDArray[np.number]:
        thresholds = fit_thresholds(logits[fit_on], labels[fit_on], metric)
        chosen = None if thresholds is None else tuple(thresholds.tolist())
        return LabelDecision(thresholds=chosen).labels(logits[apply_to], several=several)

    return cross_fit(len(logits), fit_and_apply)


def _measured(logits: npt.NDArray[np.floating], labels: npt.NDArray[np.number], temperature: float) -> dict[str, Any]:
    several = labels.ndim == 2

    def of_scaled(scaled: npt.NDArray[np.floating]) -> dict[str, float]:
        error = calibration_error(probabilities_at(scaled, 1.0, several=several), labels)
        return {"calibration_error": error, "log_loss": log_loss(scaled, labels)}

    measured = {"rows": len(logits), "as_trained": of_scaled(logits), "fitted": of_scaled(logits / temperature)}
    if len(logits) > 1:
        measured["cross_fitted"] = of_scaled(
            cross_fit(len(logits), lambda fit_on, rows: logits[rows] / fit_temperature(logits[fit_on], labels[fit_on]))
        )
    return measured
