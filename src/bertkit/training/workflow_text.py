"""Texts and pairs of texts: one label, or a number."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.checkpoints.huggingface import config_path
from bertkit.config import BertConfig
from bertkit.errors import ConfigError, DataError
from bertkit.features import FeatureSet, TextEncoder, collate, featurize
from bertkit.model.bert import BertForSequenceClassification
from bertkit.model.packed import PackedModel
from bertkit.postprocess import predictions_of
from bertkit.sources import resolve
from bertkit.tasks import DataReport, Example, Examples, Split, TextTask, data_report, load_split, score, splits_of
from bertkit.tasks.baseline import tfidf_baseline
from bertkit.tasks.duplicates import carve
from bertkit.tasks.files import beside
from bertkit.tasks.rows import OnError
from bertkit.training.predictions import prediction_rows, with_examples
from bertkit.training.scoring import Floats, predict_logits, row_losses, score_logits
from bertkit.training.settings import LONG_TEXT_TASKS, FinetuneConfig
from bertkit.training.workflow import Card, Check, Decision, Workflow


class TextWorkflow(Workflow[Example, FeatureSet, Floats]):
    """Classification and regression of :class:`bertkit.tasks.TextTask`; outputs are the logits ``(R, C)``."""

    task: TextTask
    model_class = BertForSequenceClassification
    reads_vectors = True

    def __init__(self, task: TextTask) -> None:
        super().__init__(task)
        self.default_max_length = LONG_TEXT_TASKS.get(task.name, 128)

    def splits(self, data: str | Path) -> Collection[Split]:
        return splits_of(self.task, data)

    def read(self, data: str | Path, split: Split, *, on_error: OnError = "raise") -> Examples[Example]:
        return load_split(self.task, data, split, on_error=on_error)

    def read_more(self, data: str | Path, *, on_error: OnError = "raise") -> dict[str, Examples[Example]]:
        files = {name: beside(self.task, data, "dev", name) for name in self.task.more_dev}
        there = {name: path for name, path in files.items() if path is not None}
        return {name: load_split(self.task, path, "dev", on_error=on_error) for name, path in there.items()}

    def hold_out(
        self, train: Examples[Example], share: float, seed: int
    ) -> tuple[Examples[Example], Examples[Example]]:
        return carve(train, share, seed)

    def content(self, example: Example) -> object:
        return example.text, example.text_pair, example.label

    def has_labels(self, examples: Sequence[Example]) -> bool:
        return examples[0].label is not None

    def check_train(self, train: Examples[Example]) -> None:
        if len({example.label for example in train}) < 2:
            name = "" if train.path is None else train.path.name
            raise DataError(
                f"{name}: all {len(train):,} training rows have the same label; training needs at least two labels"
            )

    def report(
        self, splits: Mapping[str, Examples[Example]], encoded: Mapping[str, FeatureSet], config: FinetuneConfig
    ) -> DataReport:
        lengths = {name: features.num_tokens for name, features in encoded.items()}
        return data_report(self.task, splits, lengths=lengths, max_length=config.max_length)

    def encode(
        self, examples: Sequence[Example], tokenizer: TextEncoder, config: FinetuneConfig, *, labelled: bool
    ) -> FeatureSet:
        features = featurize(examples, tokenizer, config.max_length)
        if not labelled:
            return replace(features, labels=None)
        # In the type that the task's loss takes: a file of whole-number scores is still regression.
        dtype = np.float32 if self.task.is_regression else np.int64
        return replace(features, labels=np.asarray(features.labels).astype(dtype, copy=False))

    def collate(self, encoded: FeatureSet, rows: Sequence[int], *, labelled: bool) -> Batch:
        return collate(encoded, rows, self.task.kind if labelled else None)

    def new_model(
        self, start: Path, *, seed: int, device: torch.device | str | None, config: FinetuneConfig
    ) -> PackedModel:
        return new_classifier(start, self.task, seed=seed, device=device)

    def check_model(self, model: PackedModel, name: str) -> None:
        theirs = model.config.id2label
        if self.task.is_regression and len(theirs) == 1:
            return
        if theirs != self.task.id2label:
            raise ConfigError(
                f"{name} predicts {list(theirs.values())[:10]}, task {self.task.name} has the labels "
                f"{list(self.task.id2label.values())[:10]}; both must be the same, in the same order"
            )

    def set_up(self, model: BertForSequenceClassification, train: FeatureSet, config: FinetuneConfig) -> None:
        model.class_weights = class_weights(self.task, train, config)

    def loss_floor(self, model: BertForSequenceClassification, train: FeatureSet) -> float:
        return label_entropy(self.task, train, model.class_weights)

    def outputs(self, model: BertForSequenceClassification, encoded: FeatureSet, *, check: Check, label: str) -> Floats:
        return predict_logits(model, encoded, check=check, label=label)

    def score(
        self, examples: Sequence[Example], encoded: FeatureSet, outputs: Floats, decision: Decision
    ) -> dict[str, float]:
        assert encoded.labels is not None
        return score_logits(self.task, outputs, encoded.labels)

    def prediction_rows(
        self, examples: Sequence[Example], encoded: FeatureSet, outputs: Floats, decision: Decision
    ) -> list[dict[str, Any]]:
        rows = prediction_rows(outputs, self._shape(), encoded.truncated)
        return with_examples(rows, examples, self.task.id2label)

    def badness(
        self, examples: Sequence[Example], encoded: FeatureSet, outputs: Floats, decision: Decision
    ) -> npt.NDArray[np.floating[Any]] | None:
        return None if encoded.labels is None else row_losses(self.task, outputs, encoded.labels)

    def main_metric_of(
        self,
        examples: Sequence[Example],
        encoded: FeatureSet,
        outputs: Floats,
        decision: Decision,
        draws: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.float64] | None:
        assert encoded.labels is not None
        predicted = predictions_of(outputs, self.task.problem_type)
        only = replace(self.task, metrics=(self.task.main_metric,))
        found = [score(only, predicted[draw], encoded.labels[draw])[self.task.main_metric] for draw in draws]
        return np.array(found)

    def baseline(self, train: Examples[Example], dev: Examples[Example], seed: int) -> dict[str, Any] | None:
        return tfidf_baseline(train, dev, self.task)

    def card(self) -> Card:
        task = self.task
        labels = ", ".join(f"`{label}`" for label in task.id2label.values())
        return Card(
            pipeline="text-classification",
            predicts=("a number" if task.is_regression else f"one of: {labels}")
            + (" for a pair of texts" if task.is_pair else " for a text"),
            call='pipe([("first text", "second text")])' if task.is_pair else 'pipe(["a text"])',
            limits="Texts are cut after {max_length} word pieces.",
        )

    def facts(self, config: FinetuneConfig) -> dict[str, Any]:
        return {
            "what_it_predicts": "score" if self.task.is_regression else "label",
            "text_pairs": self.task.is_pair,
        }

    def draw(self, folder: Path) -> tuple[str, ...]:
        from bertkit import visualize
        from bertkit.training.runfolder import read_log

        rows = read_log(folder / "predictions-dev.jsonl")
        if self.task.labels is None:
            visualize.regression(rows, folder / "scores.png")
            return ("scores.png",)
        visualize.confusion_of_rows(rows, self.task.labels, folder / "confusion.png")
        return ("confusion.png",)

    def _shape(self) -> BertConfig:
        """The labels as :func:`bertkit.training.predictions.prediction_rows` reads them."""
        return BertConfig(id2label=self.task.id2label, problem_type=self.task.problem_type)


def new_classifier(
    name_or_path: str | Path,
    task: TextTask,
    *,
    seed: int,
    device: str | torch.device | None = None,
    revision: str | None = None,
) -> BertForSequenceClassification:
    """The checkpoint's encoder with a classifier for the task.

    A checkpoint that already has a classifier for exactly these labels keeps it (training goes on); any other gets a
    new one, drawn from ``seed``.
    """
    path = resolve(name_or_path, revision=revision)
    file = BertConfig.from_json_file(config_path(path))
    classifier = any(name.endswith("ForSequenceClassification") for name in file.architectures or ())
    same = classifier and file.id2label == task.id2label
    return BertForSequenceClassification.from_pretrained(
        path, id2label=task.id2label, problem_type=task.problem_type, new_head=not same, seed=seed, device=device
    )


def class_weights(task: TextTask, train: FeatureSet, config: FinetuneConfig) -> Tensor | None:
    """``n / (C * count)`` for each label under ``class_weights="balanced"`` (scikit-learn's rule), else None.

    A label without a training row, which the rule would give an infinite weight, gets 1.
    """
    if config.class_weights == "none" or task.is_regression:
        return None
    counts = np.bincount(np.asarray(train.labels), minlength=task.num_labels)
    weights = len(train) / (np.count_nonzero(counts) * np.maximum(counts, 1))
    return torch.tensor(np.where(counts > 0, weights, 1.0), dtype=torch.float32)


def label_entropy(task: TextTask, train: FeatureSet, weights: Tensor | None = None) -> float:
    """Loss of the best answer that ignores the text: entropy of the weighted label frequencies in nats, or variance."""
    labels = np.asarray(train.labels)
    if task.is_regression:
        return float(labels.astype(np.float64).var())
    mass = np.bincount(labels, minlength=task.num_labels).astype(np.float64)
    if weights is not None:
        mass *= weights.numpy()
    shares = mass[mass > 0] / mass.sum()
    return float(-(shares * np.log(shares)).sum())
