"""What the training loop asks of a model, what it is told, what a step tells, and how far a run is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from bertkit.errors import CheckpointError
from bertkit.model.losses import LossTerm
from bertkit.system.console import clock
from bertkit.system.json_files import parsed

#: ``evaluate(check)`` gives the dev scores; it calls ``check()`` now and then, which raises when a signal has come.
Evaluate = Callable[[Callable[[], None]], Mapping[str, float]]


class Loss(Protocol):
    """What :class:`Trainer` reads of a forward pass. Every head of :mod:`bertkit.model` returns it."""

    #: The parts of the loss by name, each a sum over its targets; None where the batch has no targets.
    loss_terms: dict[str, LossTerm] | None


class Trainable(Protocol):
    """A model that can be trained: an ``nn.Module`` with these two methods."""

    def forward_packed(self, batch: Any) -> Loss: ...

    def num_targets(self, batch: Any) -> dict[str, float]: ...


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """How long to train and when to look up from it.

    num_steps: optimizer steps of the whole run, at most; with ``max_seconds`` it may be larger than can be reached.
    learning_rate: peak rate, which the schedule scales.
    max_grad_norm: gradients with a larger global norm are scaled down to it.
    monitor: name of the dev score, larger is better, that chooses the best epoch; None keeps the last.
    patience: stop after this many evaluations without a better score; None never stops early.
    checkpoint_every_s: seconds between two saved states.
    keep: states that are kept; older ones are deleted after a newer one is on the disk.
    max_seconds: time budget of the whole run, compared with :attr:`Progression.seconds` after every step: the run ends
        with the step in which it is used up. None: no limit.
    evaluate_every_steps: evaluate after each multiple of it in place of after each epoch; None: after each epoch.
        The end of the run is always evaluated.
    compile: run a part of each encoder layer through ``torch.compile``, see :mod:`bertkit.training.trainer.compiling`.
    how_to_resume: told when a signal has stopped the run.
    precision: number format of forward and backward pass; weights and optimizer stay fp32.
    """

    num_steps: int
    learning_rate: float
    max_grad_norm: float = 1.0
    monitor: str | None = None
    patience: int | None = None
    checkpoint_every_s: float = 120.0
    keep: int = 2
    label: str = "training"
    max_seconds: float | None = None
    evaluate_every_steps: int | None = None
    compile: bool = False
    how_to_resume: str = "Run the same command with --resume to go on"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"

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
    """One optimizer step.

    loss: what was minimised, the sum of ``losses``.
    losses: for each term of the loss the mean over its targets.
    grad_norm: the global norm before clipping.
    skipped: the gradients overflowed in fp16; the weights are as before.
    """

    step: int
    loss: float
    losses: dict[str, float]
    grad_norm: float
    learning_rate: float
    num_targets: dict[str, float]
    skipped: bool = False


@dataclass(slots=True)
class Progression:
    """How far a run is: all of its state that is not a tensor. Plain values, saved as JSON.

    seconds: time spent in training steps (data, forward, backward, update), over all parts of a resumed run.
        Evaluations and the writing of checkpoints are not counted, nor are steps that a killed process had made after
        its last checkpoint and that are made again.
    stopped_early: by :attr:`LoopOptions.patience`.
    stopped_by_time: :attr:`LoopOptions.max_seconds` are used up.
    loss_scale, steps_since_overflow, num_skipped: of fp16, see :mod:`bertkit.training.trainer.precision`;
    ``num_skipped`` steps
        are counted in ``step`` but left the weights as they were.
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
    epochs: list[dict[str, Any]] = field(default_factory=list)
    best_loss: float | None = None

    @classmethod
    def read(cls, values: object, source: str) -> Progression:
        """Read what ``dataclasses.asdict`` made of one.

        Raises:
            CheckpointError: it is something else; ``source`` says where it was.
        """
        known = parsed(values, dict[str, Any], f"{source}: progression")
        if missing := {"step", "evaluated_step", "epochs"} - known.keys():
            raise CheckpointError(f"{source}: progression is damaged: it has no {', '.join(sorted(missing))}")
        return parsed(known, cls, f"{source}: progression")

    def is_best(self, score: float, loss: float, patience: int | None) -> bool:
        """Whether an evaluation after :attr:`step` is the best so far; takes note of it, and of early stopping.

        Of equal scores the one with the lower dev loss is better: on a small dev set accuracy is soon the same after
        every epoch, while the loss still falls.

        Args:
            score: larger is better. One that is not a number (a correlation of constant predictions) is worse than
                every number.
            loss: dev loss, NaN where there is none.
            patience: see :class:`LoopOptions`.
        """
        ours = (score if math.isfinite(score) else -math.inf, -loss if math.isfinite(loss) else -math.inf)
        best = tuple(-math.inf if value is None else value for value in (self.best_score, _negative(self.best_loss)))
        if self.best_step is not None and ours <= best:
            self.num_stale += 1
            self.stopped_early = patience is not None and self.num_stale >= patience
            return False
        self.best_step, self.num_stale = self.step, 0
        self.best_score = score if math.isfinite(score) else None
        self.best_loss = loss if math.isfinite(loss) else None
        return True


def _negative(value: float | None) -> float | None:
    return None if value is None else -value
