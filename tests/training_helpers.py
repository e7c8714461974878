"""Tiny random models and data for the tests of training."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertkit.batch import Batch, pack
from bertkit.config.bert_config import BertConfig
from bertkit.model.models import BertForSequenceClassification
from bertkit.optim import adamw, linear_schedule, parameter_groups
from bertkit.ragged import Ragged
from bertkit.system.json_files import read_lines
from bertkit.tasks import Columns, TextTask
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer.batch_plan import EpochPlan
from bertkit.training.trainer.generators import seed_generators
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import LoopOptions

#: Arguments that start a script, or ``-m`` and a module, in two processes.
#: It looks after them every two seconds, so that one which loses the other has said so before it is ended as well.
TWO_PROCESSES = [
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--nproc-per-node", "2", "--monitor-interval", "2"),
]
TWO_PROCESSES += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]

TINY = BertConfig(
    vocab_size=101,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=40,
    num_labels=3,
)


class ToyData:
    """Random sequences whose label is the remainder of their first token: learnable, with mixed lengths."""

    def __init__(self, num_rows: int = 60, *, num_labels: int = 3, longest: int = 14, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.sequences = [generator.integers(1, 101, size=generator.integers(2, longest + 1)) for _ in range(num_rows)]
        self.labels = torch.tensor([int(ids[0]) % num_labels for ids in self.sequences])

    @property
    def lengths(self) -> list[int]:
        return [len(ids) for ids in self.sequences]

    def batch(self, rows: list[int]) -> Batch:
        return pack([self.sequences[row] for row in rows], targets={"labels": self.labels[rows]})

    def plan(self, *, step_size: int = 8, max_tokens: int = 10_000, seed: int = 0) -> EpochPlan[Batch]:
        return EpochPlan(self.lengths, self.batch, step_size=step_size, max_tokens=max_tokens, seed=seed)

    def accuracy(self, model: BertForSequenceClassification) -> dict[str, float]:
        logits = model.forward_packed(pack(self.sequences)).logits
        assert logits is not None
        return {"accuracy": float((logits.argmax(1) == self.labels).double().mean())}


def tiny_model(seed: int = 0, **changes: Any) -> BertForSequenceClassification:
    torch.manual_seed(seed)
    return BertForSequenceClassification(TINY.replace(**changes))


def no_dropout(seed: int = 0) -> BertForSequenceClassification:
    return tiny_model(seed, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def toy_trainer(
    model: BertForSequenceClassification,
    data: ToyData,
    *,
    num_steps: int = 20,
    folder: Path | None = None,
    max_tokens: int = 10_000,
    learning_rate: float = 3e-3,
    seed: int | None = 0,
    evaluate: bool = True,
    **options: Any,
) -> Trainer[Batch]:
    if seed is not None:
        seed_generators(seed)
    optimizer = adamw(parameter_groups(model), learning_rate=learning_rate)
    monitor = "accuracy" if evaluate else None
    identity = {"num_steps": num_steps}
    return Trainer(
        model,
        data.plan(max_tokens=max_tokens),
        optimizer,
        linear_schedule(num_steps),
        LoopOptions(num_steps, learning_rate, monitor=monitor, folder=folder, identity=identity, **options),
        evaluate=(lambda check: data.accuracy(model)) if evaluate else None,
    )


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file of a run."""
    return list(read_lines(path))


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in copy.copy(model).named_parameters()}


def toy_features(num_rows: int = 120, *, num_labels: int = 3, seed: int = 0, regression: bool = False) -> Ragged:
    """:class:`ToyData` as a feature set; regression labels are the first token divided by 20."""
    data = ToyData(num_rows, num_labels=num_labels, seed=seed)
    ids = np.concatenate(data.sequences).astype(np.int32)
    first = np.array([sequence[0] for sequence in data.sequences])
    return Ragged(
        ids=ids,
        token_type_ids=np.zeros(len(ids), dtype=np.int8),
        boundaries=np.concatenate([[0], np.cumsum(data.lengths)]).astype(np.int64),
        num_tokens_before=np.array(data.lengths),
        labels=(first / 20).astype(np.float32) if regression else data.labels.numpy(),
    )


def toy_task(num_labels: int | None = 3) -> TextTask:
    """A classification task with labels a, b, c ..., or with None a regression task."""
    if num_labels is None:
        return TextTask("toy", None, ("pearson",), "pearson", Columns(text=("text",)))
    return TextTask("toy", tuple("abcdefgh"[:num_labels]), ("accuracy",), "accuracy", Columns(text=("text",)))


def toy_config(**changes: Any) -> FinetuneConfig:
    given = {"learning_rate": 3e-3, "epochs": 3, "max_length": 32, "batch_size": 16, "precision": "fp32", **changes}
    return FinetuneConfig(**given)
