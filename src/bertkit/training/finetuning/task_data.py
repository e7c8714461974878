"""The data of a fine-tuning run: examples read, cut, held out, turned into token ids, and reported."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.tasks import Examples
from bertkit.tasks.registry import Task
from bertkit.tasks.workflow import AnyWorkflow, Report, workflow_of
from bertkit.tokenization import PreTrainedTokenizer
from bertkit.training.finetuning.finetune_folder import ALL
from bertkit.training.finetuning.finetune_settings import FinetuneConfig


@dataclass(frozen=True, slots=True)
class Rows:
    """Labelled examples of a run.

    held_out: dev was taken out of the training file, because the task has none.
    num_before_cut: training examples before ``max_train_rows``, held-out ones not among them.
    more: further labelled sets that finished models are scored on, by name.
    sha256: hash of what the examples of train and dev hold, in their order: the same for two copies of the same data.
    """

    train: Examples[Any]
    dev: Examples[Any]
    held_out: bool
    num_before_cut: int
    more: dict[str, Examples[Any]]
    sha256: str

    def hashes(self, workflow: AnyWorkflow) -> dict[str, str]:
        """A hash of each part, and of train and dev together: what seeds that go into one mean must have in common."""
        parts = {"train": self.train, "dev": self.dev, **{f"dev-{name}": rows for name, rows in self.more.items()}}
        told = {name: examples_hash(workflow, examples)[:16] for name, examples in parts.items()}
        return {ALL: self.sha256, **{f"hash of {name}": value for name, value in told.items()}}


@dataclass(frozen=True, slots=True)
class TaskData:
    """Examples with their token ids and the report on them; ``train``, ``dev`` and ``more`` are encoded."""

    rows: Rows
    train: Any
    dev: Any
    report: Report
    more: dict[str, Any] = field(default_factory=dict)

    def facts(self, max_length: int) -> dict[str, Any]:
        """What the protocol block says of the data."""
        rows = self.rows
        more = {f"{name}_rows": len(examples) for name, examples in rows.more.items()}
        return {
            "train_file": _name(rows.train),
            "dev_file": _name(rows.dev),
            "dev_held_out_of_train": rows.held_out,
            "train_rows": len(rows.train),
            "train_rows_left_out": rows.num_before_cut - len(rows.train),
            "dev_rows": len(rows.dev),
            **more,
            "bad_rows_left_out": {"train": len(rows.train.skipped), "dev": len(rows.dev.skipped)},
            "max_length": max_length,
            "truncated_share": {
                "train": round(float(self.train.truncated.mean()), 6),
                "dev": round(float(self.dev.truncated.mean()), 6),
            },
            "dev_rows_also_in_train": self.report.overlap.get("dev", 0),
            "data_sha256": rows.sha256,
        }


def read_rows(task: Task, data: str | Path, config: FinetuneConfig) -> Rows:
    """Read train and dev; hold dev out of train where there is no file for it; cut train to ``max_train_rows``.

    Hold-out and cut depend on ``config.seed`` and not on the seed of a single run, so all runs see the same examples.

    Raises:
        DataError: a file that is missing or wrong, too few examples, one label only.
    """
    workflow = workflow_of(task)
    train = workflow.read(data, "train", on_error=config.on_error)
    held_out = "dev" not in workflow.splits(data)
    if held_out:
        train, dev = workflow.hold_out(train, config.dev_share, config.seed)
    else:
        dev = workflow.read(data, "dev", on_error=config.on_error)
    kept = _sample(train, config.max_train_rows, config.seed)
    workflow.check_train(kept)
    more = workflow.read_more(data, on_error=config.on_error)
    sha256 = examples_hash(workflow, [*kept, *dev])
    return Rows(kept, dev, held_out, len(train), more, sha256)


def held_out_again(
    workflow: AnyWorkflow, data: str | Path, config: FinetuneConfig, facts: Mapping[str, Any]
) -> Examples[Any] | None:
    """The dev rows that a run held out of its training file; None where it held none out, or this is other data.

    Args:
        workflow: of the run's task.
        data: what is now said to be the run's data.
        config: settings of the run.
        facts: what the run's protocol says of its data, see :meth:`TaskData.facts`.
    """
    if not facts.get("dev_held_out_of_train") or "train" not in workflow.splits(data):
        return None
    train = workflow.read(
        data, "train", on_error="skip"
    )  # what the run left out; where it left out none, there is none
    num_rows = facts["train_rows"] + facts["train_rows_left_out"] + facts["dev_rows"]
    if len(train) != num_rows or not workflow.has_labels(train):
        return None
    train, dev = workflow.hold_out(train, config.dev_share, config.seed)
    kept = _sample(train, config.max_train_rows, config.seed)
    return dev if examples_hash(workflow, [*kept, *dev]) == facts["data_sha256"] else None


def encode(rows: Rows, task: Task, tokenizer: PreTrainedTokenizer, config: FinetuneConfig) -> TaskData:
    """Token ids of all examples, and the data report."""
    workflow = workflow_of(task)
    train = workflow.encode(rows.train, tokenizer, config, labelled=True)
    dev = workflow.encode(rows.dev, tokenizer, config, labelled=True)
    report = workflow.report({"train": rows.train, "dev": rows.dev}, {"train": train, "dev": dev}, config)
    more = {name: workflow.encode(examples, tokenizer, config, labelled=True) for name, examples in rows.more.items()}
    return TaskData(rows, train, dev, report, more)


def examples_hash(workflow: AnyWorkflow, examples: Iterable[Any]) -> str:
    """SHA-256 of texts and labels in their order: two data sets with the same hash are the same to a model."""
    digest = hashlib.sha256()
    for example in examples:
        row = repr(workflow.content(example))
        digest.update(row.encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def _sample(examples: Examples[Any], num_rows: int | None, seed: int) -> Examples[Any]:
    if num_rows is None or num_rows >= len(examples):
        return examples
    order = np.random.Generator(np.random.PCG64([seed, 0x5A])).permutation(len(examples))
    chosen = [examples[number] for number in np.sort(order[:num_rows]).tolist()]
    return Examples(chosen, examples.path, examples.split, examples.skipped)


def _name(rows: Examples[Any]) -> str:
    return "" if rows.path is None else rows.path.name
