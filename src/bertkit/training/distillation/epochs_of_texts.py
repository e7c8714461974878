"""Passes of a student over texts, in a folder that a stopped run goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from bertkit.batch import Batch
from bertkit.optim import adamw, linear_schedule, parameter_groups
from bertkit.system.untrusted_files import Json
from bertkit.training.trainer.batch_plan import EpochPlan
from bertkit.training.trainer.generators import seeded
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import Evaluate, LoopOptions
from bertkit.training.trainer.run_folder import CHECKPOINTS, LOG, RunLog


def train_on_texts(
    taught: nn.Module,
    plan: EpochPlan[Batch],
    config: Any,
    folder: Path,
    *,
    epochs: int,
    learning_rate: float,
    identity: Mapping[str, Json],
    how_to_resume: str,
    evaluate: Evaluate | None = None,
    **options: Any,
) -> None:
    """Train in place with AdamW, a linear schedule and clipped gradients; the best weights stay, or else the last.

    Args:
        taught: a student with its loss: what :class:`Trainer` trains.
        plan: its batches.
        config: has ``seed``, ``weight_decay``, ``warmup``, ``max_grad_norm`` and ``checkpoint_every_s``.
        folder: of the log and the checkpoints.
        epochs: passes over the texts.
        learning_rate: its peak.
        identity: what a checkpoint must agree with.
        how_to_resume: what a user must do after a stop.
        evaluate: scores after each pass.
        options: others of :class:`LoopOptions`.

    Raises:
        TrainingError, Interrupted, ResourceError: see :meth:`Trainer.run`.
    """
    num_steps = epochs * plan.steps_per_epoch
    loop = LoopOptions(
        num_steps,
        learning_rate,
        max_grad_norm=config.max_grad_norm,
        folder=folder / CHECKPOINTS,
        identity=identity,
        checkpoint_every_s=config.checkpoint_every_s,
        label="distilling",
        how_to_resume=how_to_resume,
    )
    log = RunLog(folder / LOG, how_to_resume)
    with seeded(config.seed), closing(log):
        trainer: Trainer[Batch] = Trainer(
            taught,
            plan,
            adamw(parameter_groups(taught, weight_decay=config.weight_decay), learning_rate=learning_rate),
            linear_schedule(num_steps, warmup=config.warmup),
            replace(loop, **options),
            evaluate=evaluate,
            log=log,
        )
        resumed = trainer.resume()
        log.drop_after(*((trainer.at.step, trainer.at.evaluated_step) if resumed else (0, 0)))
        trainer.run()
        trainer.restore_best()
