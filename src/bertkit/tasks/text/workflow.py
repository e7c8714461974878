"""Texts and pairs of texts: one label, or a number."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertkit.config.any_config import AnyConfig
from bertkit.config.bert_config import BertConfig
from bertkit.config.reading_settings import ReadingSettings
from bertkit.engine.backend import LOGITS, Check, Network
from bertkit.engine.inference_engine import InferenceEngine, stop_nothing
from bertkit.errors import ConfigError
from bertkit.metrics.class_scores import ClassScores, class_scores
from bertkit.metrics.intervals import Drawn, Draws
from bertkit.metrics.probabilities import entropy, frequency_logits, predictions_of
from bertkit.ragged import Floats, GroupSet, Labels
from bertkit.system.json_files import read_lines
from bertkit.tasks.answering import ColumnType
from bertkit.tasks.examples import Example, Examples, Row, Split
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.reading.splits import beside
from bertkit.tasks.report import DataReport
from bertkit.tasks.row_scores import RowScores
from bertkit.tasks.text.baseline import tfidf_baseline
from bertkit.tasks.text.decoding import (
    TUNABLE,
    LabelDecision,
    answer_columns,
    cross_fitted_labels,
    decide_labels,
    prediction_rows,
    with_examples,
    with_texts,
)
from bertkit.tasks.text.features import TextRows, encode_texts, sequences_of, values_of
from bertkit.tasks.text.reading import read_examples
from bertkit.tasks.text.report import data_report
from bertkit.tasks.text.row_scores import row_losses, text_row_scores
from bertkit.tasks.text.settings import TextTaskSettings
from bertkit.tasks.text.task import TextTask, diagnose, score
from bertkit.tasks.workflow import Card, Decision, Head, Predicted, Workflow
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.text_inputs import read_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from bertkit.batch import Batch
    from bertkit.model.auto import AnyModel

_Counts = npt.NDArray[np.float64]
#: Tokens of the longest input by task, where 128 (the paper's GLUE setting) would cut most texts.
LONG_TEXT_TASKS = {"imdb": 512, "csv": 256}
TextsPredicted = Predicted[Example, TextRows, Floats]


class TextWorkflow(Workflow[Example, TextRows, Floats]):
    """Classification and regression of :class:`bertkit.tasks.TextTask`; outputs are the logits ``(R, C)``.

    A text in windows is trained on window by window, each with the label of its text, and answered with the mean of
    their logits.
    """

    task: TextTask
    model_class = "BertForSequenceClassification"
    shared_settings = ("pooling", "class_weights", "few_shot", "few_shot_method", "few_shot_pairs", "unlabelled")
    reads_vectors = True
    reads_texts = True
    fields = ("text", "text_pair")

    def __init__(self, task: TextTask) -> None:
        super().__init__(task)
        self.default_max_length = LONG_TEXT_TASKS.get(task.name, 128)

    def own_settings(self, settings: ReadingSettings) -> Collection[str]:
        task, own = self.task, ["pooling"]
        if not task.is_regression:
            own += ["class_weights", "calibrate"]
        if task.multi_label or (task.num_labels == 2 and task.main_metric in TUNABLE):
            own += ["tune_thresholds"]
        if not task.is_pair:
            own += ["long_texts", *(["overlap"] if settings.of(TextTaskSettings).long_texts == "windows" else [])]
        return own

    def read_file(self, path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[Example]:
        return read_examples(self.task, path, split, on_error=on_error)

    def read_more(self, data: str | Path, *, on_error: OnError = "raise") -> dict[str, Examples[Example]]:
        files = {name: beside(self.task, data, "dev", name) for name in self.task.more_dev}
        there = {name: path for name, path in files.items() if path is not None}
        return {name: self.read_file(path, "dev", on_error=on_error) for name, path in there.items()}

    def texts_of(self, example: Example) -> Sequence[str]:
        return (example.text,) if not example.text_pair else (example.text, example.text_pair)

    def example_of(self, item: Mapping[str, object], where: str) -> Example:
        return Example(*read_text(item, where))

    @property
    def has_one_label(self) -> bool:
        return type(self) is TextWorkflow and self.task.kind == "classification"  # a subclass may have a teacher

    def train_fault(self, train: Examples[Example]) -> str:
        if len({example.label for example in train}) > 1:
            return ""
        what = "score" if self.task.is_regression else "label"
        return f"all {len(train):,} training rows have the same {what}; training needs at least two {what}s"

    def report(
        self, splits: Mapping[str, Examples[Example]], encoded: Mapping[str, TextRows], settings: ReadingSettings
    ) -> DataReport:
        lengths = {name: features.num_tokens_before for name, features in encoded.items()}
        limit = None if settings.of(TextTaskSettings).long_texts == "windows" else settings.max_length
        return data_report(self.task, splits, lengths=lengths, max_length=limit)

    def encode(
        self, examples: Sequence[Example], tokenizer: PreTrainedTokenizer, settings: ReadingSettings, *, labelled: bool
    ) -> TextRows:
        texts = [(example.text, example.text_pair) for example in examples]
        own = settings.of(TextTaskSettings)
        rows = encode_texts(texts, tokenizer, settings.max_length, own.long_texts, own.overlap)
        if not labelled:
            return rows
        return replace(rows, labels=self.task.label_array([example.label for example in examples]))

    def collate(self, encoded: TextRows, rows: Sequence[int]) -> Batch:
        from bertkit.batch import collate, collate_groups

        if isinstance(encoded, GroupSet):
            return collate_groups(encoded, rows, labelled=True, label_each=True)
        weights = {} if encoded.weights is None else {"row_weights": encoded.weights}
        return collate(encoded, rows, {"labels": encoded.labels, **weights})

    def head(self) -> Head:
        return {"id2label": self.task.id2label, "problem_type": self.task.problem_type}

    def check_model(self, model: Network, name: str) -> None:
        theirs = model.config.id2label
        if self.task.is_regression and len(theirs) == 1:
            return
        if theirs != self.task.id2label:
            raise ConfigError(
                f"{name} predicts {list(theirs.values())[:10]}, task {self.task.name} has the labels "
                f"{list(self.task.id2label.values())[:10]}; both must be the same, in the same order"
            )

    def set_up(self, model: AnyModel, train: TextRows, settings: ReadingSettings) -> None:
        from bertkit.model.models import BertForSequenceClassification
        from bertkit.model.seq2seq.reading_heads import BartForSequenceClassification

        assert isinstance(model, BertForSequenceClassification | BartForSequenceClassification)
        model.class_weights = class_weights(self.task, train, settings)

    def constant_answer(self, train: TextRows, settings: ReadingSettings) -> Floats:
        return constant_logits(self.task, train, class_weights(self.task, train, settings))

    def loss_floor(self, train: TextRows, settings: ReadingSettings) -> float | None:
        return label_entropy(self.task, train, class_weights(self.task, train, settings))

    def arrange(self, encoded: TextRows, values: Floats, config: AnyConfig) -> Floats:
        return values_of(encoded, values)

    def decide(self, given: TextsPredicted, settings: ReadingSettings) -> Row:
        """The temperature and thresholds that the scores of dev give, if the settings ask for them."""
        reading, own = reading_of(settings), settings.of(TextTaskSettings)
        if self.task.is_regression or not (own.calibrate or own.tune_thresholds):
            return reading
        labels, names, metric = given.encoded.labels, self._names, self.task.main_metric
        assert labels is not None
        decision = decide_labels(
            given.outputs, labels, names, metric=metric, calibrate=own.calibrate, tune=own.tune_thresholds
        )
        if "thresholds" in decision:
            ways = {
                "as_trained": LabelDecision().labels(given.outputs, several=self.task.multi_label),
                "fitted": self._labels(replace(given, decision=decision)),
                "cross_fitted": cross_fitted_labels(given.outputs, labels, metric) if len(labels) > 1 else None,
            }
            scores = {name: score(self.task, way, labels)[metric] for name, way in ways.items() if way is not None}
            decision = {**decision, "tuned": {"metric": metric, **scores}}
        return {**reading, **decision}

    def notes_on(self, decision: Decision) -> list[str]:
        tuned = decision.get("tuned")
        if not isinstance(tuned, Mapping):
            return []
        metric, others = tuned["metric"], tuned.get("cross_fitted")
        apart = "" if others is None else f", {others:.4f} by thresholds that were chosen on other rows (cross-fitted)"
        return [
            f"TUNED ON DEV: thresholds were chosen on the rows that they are scored on; {metric} of the model in this "
            f"folder is {tuned['as_trained']:.4f} without them, {tuned['fitted']:.4f} with them{apart}"
        ]

    def score(self, given: TextsPredicted) -> dict[str, float]:
        assert given.encoded.labels is not None
        return score_logits(self.task, given.outputs, given.encoded.labels, self._labels(given))

    def prediction_rows(self, given: TextsPredicted) -> list[Row]:
        shape = BertConfig(id2label=self.task.id2label, problem_type=self.task.problem_type)
        chosen = LabelDecision.of(given.decision, self._names)
        rows = prediction_rows(given.outputs, shape, given.encoded.truncated, chosen)
        return with_examples(rows, given.examples, self.task.id2label)

    def decode(self, given: TextsPredicted, config: AnyConfig) -> list[Row]:
        """By the names of the model's own labels."""
        chosen = LabelDecision.of(given.decision, list(config.id2label.values()))
        rows = prediction_rows(given.outputs, config, given.encoded.truncated, chosen)
        return with_texts(rows, given.examples, empty_pair=self.task.columns.empty_pair)

    def answer_columns(self, config: AnyConfig) -> dict[str, ColumnType]:
        return answer_columns(config)

    @property
    def reads_pairs(self) -> bool:
        return self.task.is_pair

    def pipeline_options(self, decision: Decision) -> Row:
        in_windows = decision.get("long_texts") == "windows"
        return {"top_k": "chosen" if self.task.multi_label else "best", "truncation": None if in_windows else True}

    def classes(self, given: TextsPredicted) -> ClassScores | None:
        labels = given.encoded.labels
        if self.task.is_regression or labels is None:
            return None
        return class_scores(self._labels(given), labels, self._names)

    def diagnose(self, given: TextsPredicted) -> list[str]:
        assert given.encoded.labels is not None
        return diagnose(self.task, self._labels(given), given.encoded.labels)

    def badness(self, given: TextsPredicted) -> npt.NDArray[np.float64] | None:
        return None if given.encoded.labels is None else row_losses(self.task, given.outputs, given.encoded.labels)

    def row_bounds(self) -> tuple[float, float] | None:
        return (0.0, 1.0) if self.task.main_metric in ("accuracy", "exact_match") else None

    def main_metric_of(self, given: TextsPredicted, draws: Draws) -> Drawn | None:
        assert given.encoded.labels is not None
        predicted = self._labels(given)
        only = replace(self.task, metrics=(self.task.main_metric,))
        found = [score(only, predicted[draw], given.encoded.labels[draw])[self.task.main_metric] for draw in draws]
        return np.array(found)

    def baseline(self, train: Examples[Example], dev: Examples[Example]) -> Row:
        return tfidf_baseline(train, dev, self.task)

    def card(self) -> Card:
        task = self.task
        labels = ", ".join(f"`{label}`" for label in task.id2label.values())
        return Card(
            pipeline="text-classification",
            predicts=("a number" if task.is_regression else f"{'any' if task.multi_label else 'one'} of: {labels}")
            + (" for a pair of texts" if task.is_pair else " for a text"),
            call='pipe([("first text", "second text")])' if task.is_pair else 'pipe(["a text"])',
            limits="Texts are read up to {max_length} word pieces; what happens to longer ones stands in "
            "`metrics.json` (`long_texts`).",
        )

    def facts(self, settings: ReadingSettings) -> Row:
        what = {"regression": "score", "classification": "label", "multi_label": "any number of labels"}
        own = settings.of(TextTaskSettings)
        return {
            "what_it_predicts": what[self.task.kind],
            "text_pairs": self.task.is_pair,
            "long_texts": own.long_texts,
            **({"overlap": own.overlap} if own.long_texts == "windows" else {}),
            "calibrated": own.calibrate,
            "thresholds_tuned": own.tune_thresholds,
        }

    @property
    def label_names(self) -> list[str]:
        return list(self.task.labels or ())

    def label_rows(self, folder: Path, name: str, prefix: str = "") -> list[Row] | None:
        return None if self.task.labels is None else list(read_lines(folder / f"{prefix}predictions-{name}.jsonl"))

    def row_scores(self, rows: Sequence[Mapping[str, Any]]) -> RowScores:
        return text_row_scores(self.task, rows)

    def draw(self, folder: Path, name: str = "dev", prefix: str = "") -> dict[str, Figure]:
        from bertkit.visualize import evaluation_pictures as pictures

        rows = list(read_lines(folder / f"{prefix}predictions-{name}.jsonl"))
        if self.task.labels is None:
            return {"scores": pictures.regression(rows)}
        found = {"reliability": pictures.reliability_of_rows(rows, name)}
        if (curves := pictures.curves_of_rows(rows, self.task.labels)) is not None:
            found["curves"] = curves
        if self.task.multi_label:
            return found
        return {"confusion": pictures.confusion_of_rows(rows, self.task.labels), **found}

    @property
    def _names(self) -> list[str]:
        return list(self.task.id2label.values())

    def _labels(self, given: TextsPredicted) -> npt.NDArray[np.number]:
        """What is predicted: labels under the decision, or scores."""
        if self.task.is_regression:
            return predictions_of(given.outputs, self.task.problem_type)
        return LabelDecision.of(given.decision, self._names).labels(given.outputs, several=self.task.multi_label)


def reading_of(settings: ReadingSettings) -> Row:
    """How texts are read, for ``decision.json``; a pipeline reads them the same way by default."""
    own = settings.of(TextTaskSettings)
    known: Row = {"max_length": settings.max_length, "long_texts": own.long_texts}
    return {**known, "overlap": own.overlap} if own.long_texts == "windows" and own.overlap is not None else known


def text_logits(
    engine: InferenceEngine, rows: TextRows, *, check: Check = stop_nothing, label: str = "scoring"
) -> Floats:
    """Logits of every text ``(R, C)``, of one in windows their mean; see :meth:`InferenceEngine.row_outputs`."""
    return values_of(rows, engine.row_outputs(sequences_of(rows), LOGITS, check=check, label=label))


def score_logits(
    task: TextTask, logits: Floats, labels: Labels, predicted: npt.NDArray[np.number] | None = None
) -> dict[str, float]:
    """Every metric of the task, by default of the likeliest labels, and ``loss``, the mean without class weights."""
    import torch

    from bertkit.model.losses import class_loss

    targets = torch.from_numpy(labels.astype(np.int64 if task.kind == "classification" else np.float32, copy=False))
    term = class_loss(torch.from_numpy(logits), targets, task.problem_type)
    scores = score(task, predictions_of(logits, task.problem_type) if predicted is None else predicted, labels)
    return {**scores, "loss": float(term.total) / float(term.num_targets)}


def class_weights(task: TextTask, train: TextRows, settings: ReadingSettings) -> Tensor | None:
    """``n / (C * count)`` for each label under ``class_weights="balanced"`` (scikit-learn's rule), else None.

    Of several labels a row it is how many rows do not have the label for each that has it. A label that no training row
    has, or of several that all have, gets 1: the rule would give it an infinite weight, or none.
    """
    import torch

    if settings.class_weights == "none" or task.is_regression:
        return None
    if task.multi_label:
        have = np.asarray(train.labels).sum(axis=0)
        lack = len(train) - have
        return torch.tensor(np.where(have * lack > 0, lack / np.maximum(have, 1), 1.0), dtype=torch.float32)
    counts = np.bincount(np.asarray(train.labels), minlength=task.num_labels)
    weights = len(train) / (np.count_nonzero(counts) * np.maximum(counts, 1))
    return torch.tensor(np.where(counts > 0, weights, 1.0), dtype=torch.float32)


def label_entropy(task: TextTask, train: TextRows, weights: Tensor | None = None) -> float:
    """Loss of the best answer that ignores the text: entropy of the weighted label frequencies in nats, or variance."""
    labels = _labels_of_loss(train)
    if task.is_regression:
        return float(labels.astype(np.float64).var())
    there, absent = _label_counts(task, labels, weights)
    if task.multi_label:
        # The best constant answer's binary cross-entropy, mean over labels; a label that is there weighs its weight.
        share = np.clip(there / np.maximum(there + absent, 1e-12), 1e-12, 1 - 1e-12)
        return float(-(there * np.log(share) + absent * np.log(1 - share)).mean() / len(labels))
    return entropy(there)


def constant_logits(task: TextTask, train: TextRows, weights: Tensor | None = None) -> Floats:
    """Logits ``(C,)`` of the best answer that ignores the text: the mean score, or the weighted label frequencies."""
    labels = _labels_of_loss(train)
    if task.is_regression:
        return np.array([labels.astype(np.float64).mean()], np.float32)
    there, absent = _label_counts(task, labels, weights)
    return frequency_logits(there, absent if task.multi_label else None).astype(np.float32)


def _labels_of_loss(train: TextRows) -> Labels:
    """The labels that the loss is computed on: a text in windows counts once for each window."""
    labels = np.asarray(train.labels)
    return np.repeat(labels, train.sizes, axis=0) if isinstance(train, GroupSet) else labels


def _label_counts(task: TextTask, labels: Labels, weights: Tensor | None) -> tuple[_Counts, _Counts]:
    """The number of rows with each label, times its weight, and the number of rows without it: ``(C,)`` each."""
    there: _Counts
    if task.multi_label:
        there = labels.sum(axis=0, dtype=np.float64)
    else:
        there = np.bincount(labels, minlength=task.num_labels).astype(np.float64)
    weighted = there if weights is None else there * weights.numpy().astype(np.float64)
    return weighted, len(labels) - there
