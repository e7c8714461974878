"""From logits to labels, and to rows of files, under a decision that was made on dev: a temperature, thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertkit.config.any_config import AnyConfig
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
from bertkit.metrics.probabilities import given_labels, predictions_of, sigmoid, softmax, top_k
from bertkit.ragged import Flags, Ints
from bertkit.ragged import Floats as Floats32
from bertkit.tasks.answering import ColumnType
from bertkit.tasks.examples import Example, Fact, Row

#: Metrics that a threshold between two labels can be chosen for.
TUNABLE = ("f1", "accuracy", "matthews")
#: Most labels whose probabilities are in a line of predictions.
MOST_SHARES = 100
#: Probabilities that are in memory at once, beside the logits.
NUMBERS_AT_ONCE = 4_000_000


@dataclass(frozen=True, slots=True)
class LabelDecision:
    """How logits of C labels become probabilities (after division by ``temperature``) and labels.

    thresholds: from which probability on a label is given, one for each of several labels that do not exclude each
        other; of two labels that do, the one of the second. None: half of the probability, or the likeliest label.
    """

    temperature: float = 1.0
    thresholds: tuple[float, ...] | None = None

    @classmethod
    def of(cls, decision: Mapping[str, Fact], names: Sequence[str]) -> LabelDecision:
        """What ``decision.json``, once read, says for labels of these names; CheckpointError if it is for others."""
        temperature, given = decision.get("temperature", 1.0), decision.get("thresholds")
        assert isinstance(temperature, (int, float))
        if not isinstance(given, Mapping):
            return cls(float(temperature))
        if set(given) not in (set(names), set(names[1:]) if len(names) == 2 else None):
            raise CheckpointError(
                f"decision.json of the model is for the labels {list(given)}, the model has {list(names)}"
            )
        thresholds = [given[name] for name in names if name in given]
        return cls(float(temperature), tuple(float(value) for value in thresholds if isinstance(value, (int, float))))

    def probabilities(self, logits: npt.ArrayLike, *, several: bool) -> npt.NDArray[np.floating]:
        """``(n, C)`` of logits ``(n, C)``; ``several``: of labels that do not exclude each other."""
        if self.temperature == 1.0:
            return sigmoid(logits) if several else softmax(logits)
        return probabilities_at(logits, self.temperature, several=several)

    def labels(self, logits: npt.ArrayLike, *, several: bool) -> npt.NDArray[np.number]:
        """Label numbers int64 ``(n,)``, or for several labels per row 1 and 0, int64 ``(n, C)``."""
        if self.thresholds is None and not several:
            return predictions_of(logits, "single_label_classification")
        if self.thresholds is None:
            return given_labels(self.probabilities(logits, several=True), several=True)
        exact = probabilities_at(logits, self.temperature, several=several)  # as the thresholds were chosen
        return given_labels(exact, self.thresholds, several=several)


def ranked_labels(
    logits: Floats32, scores: Floats32, count: int, decision: LabelDecision | None, *, several: bool
) -> Iterator[list[tuple[int, float]]]:
    """The ``count`` labels of the highest scores ``(n, C)``, best first; of a ``decision`` only those that it gives."""
    ranking, best = (array.tolist() for array in top_k(scores, count))
    chosen = [None] * len(ranking) if decision is None else decision.labels(logits, several=several).tolist()
    for numbers, values, own in zip(ranking, best, chosen, strict=True):
        found = zip(numbers, values, strict=True)
        yield [pair for pair in found if decision is None or (own[pair[0]] if several else pair[0] == own)]


def decide_labels(
    logits: npt.NDArray[np.floating],
    labels: npt.NDArray[np.number],
    names: Sequence[str],
    *,
    metric: str,
    calibrate: bool,
    tune: bool,
) -> Row:
    """Fit a decision on logits ``(n, C)``, and say what it is worth on rows that it was not fitted on.

    ``labels`` are numbers ``(n,)``, or 1 and 0 of shape ``(n, C)``. ``calibrate`` fits a temperature. ``tune`` chooses
    a threshold between two labels for a metric of :data:`TUNABLE`, or for each of several labels per row the one of the
    best F1. The result, for ``decision.json``: ``temperature``, ``thresholds`` (by label), and under ``measured`` the
    calibration error and the log loss as trained, fitted, and cross-fitted: each fifth by a fit on the other rows.
    """
    found: Row = {}
    temperature = fit_temperature(logits, labels) if calibrate else 1.0
    if calibrate:
        found = {"temperature": temperature, "measured": _measured(logits, labels, temperature)}
    thresholds = fit_thresholds(logits, labels, metric, temperature) if tune else None
    if thresholds is not None:
        tuned = names if labels.ndim == 2 else names[1:]
        found["thresholds"] = dict(zip(tuned, thresholds.tolist(), strict=True))
    return found


def fit_thresholds(
    logits: npt.NDArray[np.floating], labels: npt.NDArray[np.number], metric: str, temperature: float = 1.0
) -> Floats | None:
    """The best thresholds, ``(C,)`` or of two labels ``(1,)``; None where none can be chosen."""
    if labels.ndim == 2:
        return best_thresholds(probabilities_at(logits, temperature, several=True), labels)
    if logits.shape[1] == 2 and metric in TUNABLE:
        return np.array([best_threshold(probabilities_at(logits, temperature)[:, 1], labels == 1, metric)])
    return None


def cross_fitted_labels(
    logits: npt.NDArray[np.floating], labels: npt.NDArray[np.number], metric: str
) -> npt.NDArray[np.number]:
    """Labels by thresholds that were chosen on other rows. A temperature changes none: it keeps the order."""
    several = labels.ndim == 2

    def fit_and_apply(fit_on: Ints, apply_to: Ints) -> npt.NDArray[np.number]:
        thresholds = fit_thresholds(logits[fit_on], labels[fit_on], metric)
        chosen = None if thresholds is None else tuple(thresholds.tolist())
        return LabelDecision(thresholds=chosen).labels(logits[apply_to], several=several)

    return cross_fit(len(logits), fit_and_apply)


def _measured(logits: npt.NDArray[np.floating], labels: npt.NDArray[np.number], temperature: float) -> Row:
    def of_scaled(scaled: npt.NDArray[np.floating]) -> dict[str, float]:
        error = calibration_error(probabilities_at(scaled, 1.0, several=labels.ndim == 2), labels)
        return {"calibration_error": error, "log_loss": log_loss(scaled, labels)}

    measured: Row = {"rows": len(logits), "as_trained": of_scaled(logits), "fitted": of_scaled(logits / temperature)}
    if len(logits) > 1:
        measured["cross_fitted"] = of_scaled(
            cross_fit(len(logits), lambda fit_on, rows: logits[rows] / fit_temperature(logits[fit_on], labels[fit_on]))
        )
    return measured


def prediction_rows(
    logits: npt.NDArray[np.floating], config: AnyConfig, truncated: Flags, decision: LabelDecision | None = None
) -> list[Row]:
    """``predicted``, for labels ``probabilities`` by name, and ``truncated`` of each of the logits ``(n, C)``.

    Of more than :data:`MOST_SHARES` labels the likeliest have their probabilities there, the likeliest first.
    """
    if _is_regression(config):
        values = predictions_of(logits, config.problem_type).tolist()
        return [{"predicted": value, "truncated": cut} for value, cut in zip(values, truncated.tolist(), strict=True)]
    names = [config.id2label[number] for number in range(config.num_labels)]
    several, chosen = config.problem_type == "multi_label_classification", decision or LabelDecision()
    rows: list[Row] = []
    size = rows_at_once(logits)
    for start in range(0, len(logits), size):
        part = logits[start : start + size]
        shares, labels = chosen.probabilities(part, several=several), chosen.labels(part, several=several)
        for label, share, cut in zip(labels, shares, truncated[start : start + size].tolist(), strict=True):
            given = [names[number] for number in np.flatnonzero(label)] if several else names[label]
            rows.append({"predicted": given, "probabilities": _by_name(share, names), "truncated": cut})
    return rows


def answer_columns(config: AnyConfig) -> dict[str, ColumnType]:
    """The columns of :func:`prediction_rows` in a table; of more than :data:`MOST_SHARES` labels none has its own."""
    marks: dict[str, ColumnType] = {"truncated": "bool", "empty": "bool"}
    if _is_regression(config):
        return {"predicted": "float64", **marks}
    labels = config.id2label.values() if config.num_labels <= MOST_SHARES else ()
    shares: dict[str, ColumnType] = {f"p_{label}": "float64" for label in labels}
    if config.problem_type == "multi_label_classification":
        return {"predicted": ["string"], "probability": ["float64"], **shares, **marks}
    return {"predicted": "string", "probability": "float64", **shares, **marks}


def _is_regression(config: AnyConfig) -> bool:
    return config.problem_type == "regression" or (config.problem_type is None and config.num_labels == 1)


def rows_at_once(logits: npt.NDArray[np.floating]) -> int:
    """How many rows of logits ``(n, C)`` are computed with at once."""
    return max(1, NUMBERS_AT_ONCE // int(logits.shape[1]))


def _by_name(share_C: npt.NDArray[np.floating], names: Sequence[str]) -> dict[str, float]:
    if len(names) <= MOST_SHARES:
        return dict(zip(names, share_C.tolist(), strict=True))
    largest = np.argpartition(share_C, -MOST_SHARES)[-MOST_SHARES:]
    largest = largest[np.lexsort((largest, -share_C[largest]))]
    return dict(zip([names[number] for number in largest], share_C[largest].tolist(), strict=True))


def with_texts(rows: Iterable[Row], examples: Sequence[Example], *, empty_pair: bool = False) -> list[Row]:
    """The rows with ``text`` (and ``text_pair``) in front; those without a text are ``empty`` and get no label.

    empty_pair: the second text of a pair may be empty.
    """
    found = []
    for row, named, example in zip(rows, inputs_of(examples), examples, strict=True):
        texts = [text for text in (example.text, None if empty_pair else example.text_pair) if text is not None]
        if not all(text.strip() for text in texts):
            shares = row.get("probabilities")
            none = {"probabilities": dict.fromkeys(shares)} if isinstance(shares, dict) else {}
            row = {**row, "predicted": None, **none, "empty": True}
        found.append({**named, **row})
    return found


def inputs_of(examples: Sequence[Example]) -> list[Row]:
    """``text`` and, of pairs, ``text_pair`` of each example."""
    return [
        {"text": example.text, **({} if example.text_pair is None else {"text_pair": example.text_pair})}
        for example in examples
    ]


def with_examples(rows: Iterable[Row], examples: Sequence[Example], names: Mapping[int, str]) -> list[Row]:
    """The rows with line number, text and ``gold`` (label name or names, score, or None) in front."""
    found = []
    for row, example in zip(rows, examples, strict=True):
        gold: Fact = example.label
        if isinstance(example.label, tuple):
            gold = [names[number] for number in example.label]
        elif isinstance(example.label, int) and "probabilities" in row:
            gold = names[example.label]
        found.append({"row": example.row, **inputs_of([example])[0], "gold": gold, **row})
    return found
