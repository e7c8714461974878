"""The three tasks of tasks.py on which a transformers loop is compared with bertkit."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from task_jobs import Job


def import_peers(threads: int) -> None:
    """Load what both systems need, so that imports are not timed."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    for name in ("Trainer", "TrainingArguments", "AutoTokenizer", "DataCollatorWithPadding", "BertForMultipleChoice"):
        getattr(transformers, name)
    for module in (
        "training.finetuning.fit",
        "tasks.spans.workflow",
        "tasks.tokens.workflow",
        "tasks.choices.workflow",
    ):
        importlib.import_module(f"bertkit.{module}")


@dataclass(frozen=True)
class Peers:
    """A dataset and the two systems.

    systems: seed -> (outputs, seconds), by name. score: of outputs. baseline: metrics and name, computed on demand.
    """

    train: Sequence[Any]
    dev: Sequence[Any]
    left_out: int
    held_out: bool
    systems: dict[str, Callable[[int], tuple[Any, float]]]
    score: Callable[[Any], dict[str, float]]
    baseline: Callable[[], dict[str, Any]]

    def run(self, system: str, seed: int) -> dict[str, float]:
        outputs, seconds = self.systems[system](seed)
        return {**self.score(outputs), "seconds": round(seconds, 1)}

    def facts(self) -> dict[str, Any]:
        found = self.baseline()
        return {
            "baseline": found["metrics"],
            "baseline_name": found["name"],
            "train_rows": len(self.train),
            "left_out": self.left_out,
            "dev_rows": len(self.dev),
            "held_out": self.held_out,
        }


def squad_peers(data: Path, job: Job) -> Peers:
    import squad
    from bertkit.tasks.spans.reading import hold_out
    from bertkit.tasks.spans.task import SQUAD
    from bertkit.tasks.workflow import workflow_of

    whole, others = hold_out(workflow_of(SQUAD).read(data, "dev"), 0.15, seed=0)
    train, dev = squad.sample(whole, job.rows), squad.sample(others, job.dev_size)
    return Peers(
        train, dev, len(whole) - len(train), True,
        {
            "bertkit": lambda seed: squad.run_bertkit(train, dev, job.epochs, seed),
            "transformers": lambda seed: squad.run_transformers(train, dev, job.epochs, seed),
        },
        lambda answers: {name: value / 100 for name, value in squad.score(dev, answers).items()},
        lambda: workflow_of(SQUAD).baseline(train, dev),
    )  # fmt: skip


def ner_peers(data: Path, job: Job) -> Peers:
    import ner
    from bertkit.tasks import ner_task
    from bertkit.tasks.run_rows import read_rows
    from bertkit.tasks.workflow import workflow_of
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig

    task = ner_task(data)
    rows = read_rows(workflow_of(task), data, FinetuneConfig(max_train_rows=job.rows))
    return Peers(
        rows.train, rows.dev, rows.num_before_cut - len(rows.train), rows.held_out,
        {
            "bertkit": lambda seed: ner.run_bertkit(task, rows.train, rows.dev, job.epochs, seed),
            "transformers": lambda seed: ner.run_transformers(task, rows.train, rows.dev, job.epochs, seed),
        },
        lambda tags: ner.score(rows.dev, tags),
        lambda: workflow_of(task).baseline(rows.train, rows.dev),
    )  # fmt: skip


def choice_peers(data: Path, job: Job) -> Peers:
    import choice
    from bertkit.tasks.choices.task import CODAH
    from bertkit.tasks.run_rows import read_rows
    from bertkit.tasks.workflow import workflow_of
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig

    rows = read_rows(workflow_of(CODAH), data, FinetuneConfig(max_train_rows=job.rows))
    return Peers(
        rows.train, rows.dev, rows.num_before_cut - len(rows.train), rows.held_out,
        {
            "bertkit": lambda seed: choice.run_bertkit(rows.train, rows.dev, job.epochs, seed),
            "transformers": lambda seed: choice.run_transformers(rows.train, rows.dev, job.epochs, seed),
        },
        lambda chosen: choice.score(rows.dev, chosen),
        lambda: workflow_of(CODAH).baseline(rows.train, rows.dev),
    )  # fmt: skip


PEERS: dict[str, Callable[[Path, Job], Peers]] = {"squad": squad_peers, "ner": ner_peers, "choice": choice_peers}
