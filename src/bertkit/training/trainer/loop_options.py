"""The types of the training loop: what it needs of a model, its options, the result of a step, its progress."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import torch

from bertkit.config.number_formats import Precision
from bertkit.errors import CheckpointError
from bertkit.model.losses import LossTerm
from bertkit.system.console import clock
from bertkit.system.json_files import parsed
from bertkit.system.untrusted_files import Json

#: ``evaluate(check)`` returns the dev scores; it calls ``check()`` regularly, which raises after a signal.
Evaluate = Callable[[Callable[[], None]], Mapping[str, float]]

#: How a run that was stopped is continued, unless its options say otherwise.
WITH_RESUME = "Run the same command with --resume to continue"

#: One line of ``log.jsonl``: flat, so that any program can read it.
Record = dict[str, Any]


class OnDevice(Protocol):
    """A batch that can be moved."""

    def to(self, device: torch.device) -> Self: ...


class Loss(Protocol):
    """What :class:`Trainer` reads from a forward pass; every head of :mod:`bertkit.model` returns it."""

    #: The terms of the loss by name, each a sum over its targets; None if the batch has no targets.
    loss_terms: dict[str, LossTerm] | None


#: The input of one forward pass: a :class:`bertkit.batch.Batch`, or another type for another module.
BatchT = TypeVar("BatchT", bound=OnDevice)
BatchT_contra = TypeVar("BatchT_contra", contravariant=True)


class Trainable(Protocol[BatchT_contra]):
    """A model that can be trained: an ``nn.Module`` with these methods."""

    def forward_packed(self, batch: BatchT_contra) -> Loss: ...

    def num_targets(self, batch: BatchT_contra) -> dict[str, float]: ...


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """How long to train, and when to evaluate and save.

    num_steps: maximum optimizer steps of the whole run; with ``max_seconds`` it may be more than can be reached.
    monitor: dev score (larger is better) that chooses the best epoch, if equal the lower dev loss; None keeps the last.
    patience: stop after this many evaluations without a better score; None never stops early.
    folder: for checkpoints; None keeps everything in memory, so the run cannot be resumed.
    identity: settings and data; a checkpoint with another identity is refused on resume.
    max_seconds: time budget of the whole run, compared with :attr:`Progression.seconds` after each step.
    evaluate_every_steps: evaluate every so many steps; None: after each epoch. The end of the run is always evaluated.
    deterministic: on a GPU, only kernels that give the same bits every time.
    how_to_resume: advice when a signal or a full disk stops the run.
    """

    num_steps: int
    learning_rate: float
    max_grad_norm: float = 1.0
    monitor: str | None = None
    patience: int | None = None
    folder: Path | None = None
    identity: Mapping[str, Json] = field(default_factory=dict)
    checkpoint_every_s: float = 120.0
    keep: int = 2
    label: str = "training"
    max_seconds: float | None = None
    evaluate_every_steps: int | None = None
    compile: bool = False
    deterministic: bool = False
    how_to_resume: str = WITH_RESUME
    precision: Precision = "fp32"

    def time_is_up(self, seconds: float) -> bool:
        """Whether a run that has trained for ``seconds`` has used up its budget."""
        return self.max_seconds is not None and seconds >= self.max_seconds

    def position(self, step: int, seconds: float) -> str:
        """How far a run is, as the end of "after step ..."."""
        if self.max_seconds is None:
            return f"{step} of {self.num_steps}"
        return f"{step}, {clock(seconds)} of the {clock(self.max_seconds)} budget used"


@dataclass(frozen=True, slots=True)
class StepResult:
    """One optimizer step; ``losses`` are means over targets, ``grad_norm`` is before clipping, ``skipped`` by fp16."""

    step: int
    loss: float
    losses: dict[str, float]
    grad_norm: float
    learning_rate: float
    num_targets: dict[str, float]
    skipped: bool = False


@dataclass(slots=True)
class Progression:
    """The state of a run that is not a tensor: plain values, saved as JSON.

    seconds: time in training steps (data, forward, backward, update), over all parts of a resumed run, without
    evaluations, checkpoints, and steps that a killed process made after its last checkpoint.
    """

    step: int = 0
    evaluated_step: int = 0
    epoch_loss_sums: dict[str, float] = field(default_factory=dict)
    epoch_num_targets: dict[str, float] = field(default_factory=dict)
    best_step: int | None = None
    best_score: float | None = None
    num_stale: int = 0
    stopped_early: bool = False
    stopped_by_time: bool = False
    seconds: float = 0.0
    loss_scale: float = 65536.0
    steps_since_overflow: int = 0
    num_skipped: int = 0
    epochs: list[Record] = field(default_factory=list)
    best_loss: float | None = None

    @classmethod
    def read(cls, values: object, source: str) -> Progression:
        """Read what ``dataclasses.asdict`` made of one; ``source`` says where it was."""
        known = parsed(values, dict[str, Any], f"{source}: progression")
        if missing := {"step", "evaluated_step", "epochs"} - known.keys():
            raise CheckpointError(f"{source}: the progress record is damaged: it lacks {', '.join(sorted(missing))}")
        return parsed(known, cls, f"{source}: progression")

    def is_best(self, score: float, loss: float, patience: int | None) -> bool:
        """Record an evaluation after :attr:`step`; return whether it is the best so far.

        If scores are equal the lower dev loss is better: on a small dev set accuracy soon stays the same while the
        loss still falls. A score that is not a number (a correlation of constant predictions) is worse than any number.
        """
        ours = (score if math.isfinite(score) else -math.inf, -loss if math.isfinite(loss) else -math.inf)
        best = (
            -math.inf if self.best_score is None else self.best_score,
            -math.inf if self.best_loss is None else -self.best_loss,
        )
        if self.best_step is not None and ours <= best:
            self.num_stale += 1
            self.stopped_early |= patience is not None and self.num_stale >= patience
            return False
        self.best_step, self.num_stale = self.step, 0
        self.best_score = score if math.isfinite(score) else None
        self.best_loss = loss if math.isfinite(loss) else None
        return True
