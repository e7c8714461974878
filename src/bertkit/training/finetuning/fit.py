"""Train a model on encoded examples: what :func:`bertkit.training.finetuning.finetune.finetune` does once per seed.

Here is the only place where settings become an optimizer, a schedule, a plan and a :class:`Trainer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.engine.scoring import Check
from bertkit.model.models import BertForSequenceClassification
from bertkit.optim import Schedule, adamw, linear_schedule, original_schedule, parameter_groups
from bertkit.ragged import Floats, GroupSet, Ragged
from bertkit.system.console import say
from bertkit.tasks import TextTask
from bertkit.tasks.registry import Task
from bertkit.tasks.text.label_weights import class_weights, label_entropy
from bertkit.tasks.text.workflow import new_classifier
from bertkit.tasks.workflow import AnyWorkflow, Predicted, workflow_of
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.frozen_encoder import (
    FrozenHead,
    VectorBatch,
    freeze_encoder,
    frozen_vectors,
    windows_apart,
)
from bertkit.training.trainer.batch_plan import EpochPlan
from bertkit.training.trainer.generators import seed_generators
from bertkit.training.trainer.loop import Evaluate, LoopOptions, Progression, Trainer

__all__ = ["DEAD_MARGIN", "Dev", "Fit", "class_weights", "fit", "fit_classifier", "label_entropy", "new_classifier"]

#: A run is called dead when its last training loss is not this share below the entropy of the labels.
DEAD_MARGIN = 0.02
#: A run that may be replaced is looked at from this share of its steps on, but not before so many updates, which a slow
#: one needs (Zhang et al. 2021), and ended there if it is dead.
DEAD_FROM, DEAD_FROM_STEP = 0.5, 300


@dataclass(frozen=True, slots=True)
class Fit:
    """A finished training run.

    model: with the best weights, in eval mode.
    progression: epochs, best step, whether it stopped early.
    dead: the training loss never fell below what the label frequencies alone give.
    label_entropy: that bound (nats; for regression the variance of the scores).
    last_weights: the parameters after the last step, where they are not the best ones.
    """

    model: Any
    progression: Progression
    dead: bool
    label_entropy: float
    last_weights: Mapping[str, Tensor] | None


@dataclass(frozen=True, slots=True)
class Dev:
    """What the epochs of a run are compared on: labelled examples, and the same encoded."""

    examples: Sequence[Any]
    encoded: Any


def fit_classifier(
    model: BertForSequenceClassification,
    task: TextTask,
    train: Ragged,
    dev: Ragged | None,
    config: FinetuneConfig,
    **options: Any,
) -> Fit:
    """:func:`fit` for a text task whose rows are at hand as features; ``options`` are those of :func:`fit`."""
    assert train.labels is not None, "training rows have labels"
    return fit(model, workflow_of(task), train, None if dev is None else Dev((), dev), config, **options)


def fit(
    model: Any,
    workflow: AnyWorkflow,
    train: Any,
    dev: Dev | None,
    config: FinetuneConfig,
    *,
    seed: int,
    folder: Path | None = None,
    log: Callable[[dict[str, Any]], None] = lambda record: None,
    on_resume: Callable[[int, int], None] = lambda step, evaluated_step: None,
    identity: Mapping[str, Any] | None = None,
    cache: Path | None = None,
    resume: bool = False,
    label: str = "fine-tuning",
    end_when_dead: bool = False,
) -> Fit:
    """Train to the end; the model is changed in place.

    Args:
        model: from :meth:`Workflow.new_model`.
        workflow: of the task.
        train: encoded, labelled.
        dev: chooses the best epoch; None keeps the last.
        config: resolved settings; its own ``seed`` is not read.
        seed: data order and dropout.
        folder: where checkpoints go; None for a run in memory.
        log: called with one record per step and per epoch.
        on_resume: called with the step a resumed run begins at, and the last one that was evaluated, before the first
            new record.
        identity: what a checkpoint must agree with on resume.
        cache: folder of the feature cache for a frozen encoder.
        resume: go on from the newest checkpoint in ``folder``, if there is one.
        label: what the progress bar says.
        end_when_dead: a run that is dead in its second half, after 300 updates or more, ends there: another seed will
            take its place.

    Raises:
        TrainingError, Interrupted, ResourceError, CheckpointError: see :meth:`Trainer.run`.
    """
    workflow.set_up(model, train, config)
    floor = workflow.loss_floor(model, train)
    seed_generators(seed)
    if config.freeze_encoder and workflow.reads_vectors:
        trainer = _frozen_trainer(model, workflow, train, dev, config, seed, cache)
    else:
        if config.freeze_encoder:
            freeze_encoder(model)
        trainer = _full_trainer(model, workflow, train, dev, config, seed)
    trainer.log, trainer.folder = log, folder
    if end_when_dead:
        trainer.log = _ending_dead_runs(trainer, log, floor)
    trainer.identity = {**(identity or {}), "seed": seed}
    trainer.options = replace(trainer.options, label=label)
    resumed = resume and folder is not None and trainer.resume()
    on_resume(*((trainer.at.step, trainer.at.evaluated_step) if resumed else (0, 0)))
    at = trainer.run()
    last = None
    if trainer.best is not None and at.best_step != at.step:
        last = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer.restore_best()
    model.eval()
    return Fit(model, at, bool(at.epochs) and _is_dead(at.epochs[-1], floor), floor, last)


def _is_dead(epoch: Mapping[str, Any], floor: float) -> bool:
    return bool(epoch["train_loss"] > (1 - DEAD_MARGIN) * floor)


def _ending_dead_runs(
    trainer: Trainer[Any], log: Callable[[dict[str, Any]], None], floor: float
) -> Callable[[dict[str, Any]], None]:
    """The log, and an end of the run after an epoch in its second half that shows nothing learned."""

    def tell(record: dict[str, Any]) -> None:
        log(record)
        at, num_steps = trainer.at, trainer.options.num_steps
        past = max(DEAD_FROM * num_steps, DEAD_FROM_STEP) <= at.step < num_steps
        if record.get("event") == "epoch" and past and _is_dead(record, floor):
            say(f"{trainer.options.label}: loss {record['train_loss']:.4f} after step {at.step} of {num_steps}: dead")
            at.stopped_early = True

    return tell


def _evaluate(
    workflow: AnyWorkflow, dev: Dev | None, config: FinetuneConfig, outputs: Callable[[Dev, Check], Any]
) -> Evaluate | None:
    """Scores of dev from what ``outputs`` gives for it."""
    if dev is None:
        return None

    def evaluate(check: Check) -> dict[str, float]:
        found = Predicted(dev.examples, dev.encoded, outputs(dev, check), {})
        return workflow.score(replace(found, decision=workflow.decide(found, config)))

    return evaluate


def _full_trainer(
    model: Any, workflow: AnyWorkflow, train: Any, dev: Dev | None, config: FinetuneConfig, seed: int
) -> Trainer[Any]:
    plan = EpochPlan(
        train.lengths.tolist(),
        lambda rows: workflow.collate(train, rows, labelled=True),
        step_size=config.batch_size * config.accumulation,
        max_tokens=config.max_tokens,
        seed=seed,
    )

    def outputs(dev: Dev, check: Check) -> Any:
        return workflow.outputs(model, dev.encoded, check=check, label="evaluating")

    return _trainer(model, plan, workflow.task, config, _evaluate(workflow, dev, config, outputs))


def _frozen_trainer(
    model: BertForSequenceClassification,
    workflow: AnyWorkflow,
    train: Ragged | GroupSet,
    dev: Dev | None,
    config: FinetuneConfig,
    seed: int,
    cache: Path | None,
) -> Trainer[Any]:
    vectors = torch.from_numpy(frozen_vectors(model, train, cache=cache, label="encoding train"))
    labels = torch.from_numpy(np.asarray(train.labels))
    windows = windows_apart(model, train)

    def batch_of(rows: list[int]) -> VectorBatch:
        if windows is None:
            return VectorBatch(vectors[rows], {"labels": labels[rows]})
        each = torch.from_numpy(windows.sizes[rows])  # as the full model: every window has the label of its text
        return VectorBatch(vectors[windows.sequences_of(rows)], {"labels": labels[rows].repeat_interleave(each, dim=0)})

    plan = EpochPlan(
        [1] * len(train),
        batch_of,
        step_size=config.batch_size * config.accumulation,
        max_tokens=len(train),
        seed=seed,
        unit="rows",
    )
    head = FrozenHead(model)
    dev_vectors: Floats | None = None
    if dev is not None:
        dev_vectors = frozen_vectors(model, dev.encoded, cache=cache, label="encoding dev")

    def outputs(dev: Dev, check: Check) -> Any:
        assert dev_vectors is not None
        return head.logits(dev_vectors, dev.encoded)

    return _trainer(head, plan, workflow.task, config, _evaluate(workflow, dev, config, outputs))


def _trainer(
    module: nn.Module, plan: EpochPlan[Any], task: Task, config: FinetuneConfig, evaluate: Evaluate | None
) -> Trainer[Any]:
    assert config.learning_rate is not None, "settings must be resolved"
    assert config.epochs is not None, "settings must be resolved"
    num_steps = config.epochs * plan.steps_per_epoch
    groups = parameter_groups(module, weight_decay=config.weight_decay, layer_decay=config.layer_decay)
    optimizer = adamw(groups, learning_rate=config.learning_rate, bias_correction=config.protocol != "original")
    options = LoopOptions(
        num_steps,
        config.learning_rate,
        max_grad_norm=config.max_grad_norm,
        # The 2018 code keeps what the last step left; dev chooses among rates and epochs, not within a run.
        monitor=task.main_metric if evaluate is not None and config.keeps_best_epoch else None,
        patience=config.patience,
        checkpoint_every_s=config.checkpoint_every_s,
        precision=config.precision,
    )
    return Trainer(module, plan, optimizer, _schedule(config, num_steps), options, evaluate=evaluate)


def _schedule(config: FinetuneConfig, num_steps: int) -> Schedule:
    make = original_schedule if config.protocol == "original" else linear_schedule
    return make(num_steps, warmup=config.warmup)
