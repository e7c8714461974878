"""The data of a fine-tuning run: rows read, cut, held out, turned into token ids, and reported."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import DataError
from bertkit.features import FeatureSet, TextEncoder, featurize
from bertkit.tasks import Example, Examples, TextTask, load_split, splits_of
from bertkit.tasks.duplicates import carve
from bertkit.tasks.report import DataReport, data_report
from bertkit.training.settings import FinetuneConfig


@dataclass(frozen=True, slots=True)
class Rows:
    """Labelled rows of a run.

    held_out: dev was taken out of the training file, because the task has none.
    num_before_cut: training rows before ``max_train_rows``, held-out rows not among them.
    """

    train: Examples
    dev: Examples
    held_out: bool
    num_before_cut: int

    @property
    def sha256(self) -> str:
        """Hash of texts and labels in their order: the same for two copies of the same data."""
        return examples_hash([*self.train, *self.dev])


@dataclass(frozen=True, slots=True)
class TaskData:
    """Rows with their token ids and the report on them."""

    rows: Rows
    train: FeatureSet
    dev: FeatureSet
    report: DataReport

    def facts(self, max_length: int) -> dict[str, Any]:
        """What the protocol block says of the data."""
        rows = self.rows
        return {
            "train_file": _name(rows.train),
            "dev_file": _name(rows.dev),
            "dev_held_out_of_train": rows.held_out,
            "train_rows": len(rows.train),
            "train_rows_left_out": rows.num_before_cut - len(rows.train),
            "dev_rows": len(rows.dev),
            "bad_rows_left_out": {"train": len(rows.train.skipped), "dev": len(rows.dev.skipped)},
            "max_length": max_length,
            "truncated_share": {
                "train": round(float(self.train.truncated.mean()), 6),
                "dev": round(float(self.dev.truncated.mean()), 6),
            },
            "dev_rows_also_in_train": self.report.overlap.get("dev", 0),
            "data_sha256": rows.sha256,
        }


def read_rows(task: TextTask, data: str | Path, config: FinetuneConfig) -> Rows:
    """Read train and dev; hold dev out of train where there is no file for it; cut train to ``max_train_rows``.

    Hold-out and cut depend on ``config.seed`` and not on the seed of a single run, so all runs see the same rows.

    Raises:
        DataError: a file that is missing or wrong, too few rows, one label only.
    """
    train = load_split(task, data, "train", on_error=config.on_error)
    held_out = "dev" not in splits_of(task, data)
    if held_out:
        train, dev = carve(train, config.dev_share, config.seed)
    else:
        dev = load_split(task, data, "dev", on_error=config.on_error)
    kept = _sample(train, config.max_train_rows, config.seed)
    _check_labels(task, kept)
    return Rows(kept, dev, held_out, len(train))


def encode(rows: Rows, task: TextTask, tokenizer: TextEncoder, max_length: int) -> TaskData:
    """Token ids of all rows, and the data report."""
    train = _labelled(featurize(rows.train, tokenizer, max_length), task)
    dev = _labelled(featurize(rows.dev, tokenizer, max_length), task)
    report = data_report(
        task,
        {"train": rows.train, "dev": rows.dev},
        lengths={"train": train.num_tokens, "dev": dev.num_tokens},
        max_length=max_length,
    )
    return TaskData(rows, train, dev, report)


def examples_hash(examples: Sequence[Example]) -> str:
    """SHA-256 of texts and labels in their order: two data sets with the same hash are the same to a model."""
    digest = hashlib.sha256()
    for example in examples:
        row = repr((example.text, example.text_pair, example.label))
        digest.update(row.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def _labelled(features: FeatureSet, task: TextTask) -> FeatureSet:
    """Labels in the type the task's loss takes: a file of whole-number scores is still regression."""
    dtype = np.float32 if task.is_regression else np.int64
    return replace(features, labels=np.asarray(features.labels).astype(dtype, copy=False))


def _sample(examples: Examples, num_rows: int | None, seed: int) -> Examples:
    if num_rows is None or num_rows >= len(examples):
        return examples
    order = np.random.Generator(np.random.PCG64([seed, 0x5A])).permutation(len(examples))
    chosen = [examples[number] for number in np.sort(order[:num_rows]).tolist()]
    return Examples(chosen, examples.path, examples.split, examples.skipped)


def _check_labels(task: TextTask, train: Examples) -> None:
    labels = {example.label for example in train}
    if len(labels) < 2:
        raise DataError(
            f"{_name(train)}: all {len(train):,} training rows have the same label; training needs at least two labels"
        )


def _name(rows: Examples) -> str:
    return "" if rows.path is None else rows.path.name
