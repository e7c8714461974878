"""Train a model on encoded examples: what fine-tuning does once per seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.engine.backend import Check
from bertkit.model.sparse_comparison import SparseComparison
from bertkit.optim import adamw, original_schedule, parameter_groups
from bertkit.ragged import GroupSet, Ragged
from bertkit.system.console import say
from bertkit.tasks.examples import Encoded
from bertkit.tasks.text.task import TextTask
from bertkit.tasks.workflow import AnyWorkflow, Predicted, workflow_of
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.frozen_encoder import (
    CLASSIFIERS,
    FrozenHead,
    VectorBatch,
    freeze_encoder,
    frozen_vectors,
    windows_apart,
)
from bertkit.training.trainer.assembly import RunOptions, make_trainer, run_trainer
from bertkit.training.trainer.batch_plan import EpochPlan, Plan, WholeSteps
from bertkit.training.trainer.callbacks import AnyTrainer, Callback
from bertkit.training.trainer.compiling import will_compile
from bertkit.training.trainer.generators import seed_generators
from bertkit.training.trainer.loop_options import Progression, Record
from bertkit.training.trainer.used_words import all_words, only_used_words

if TYPE_CHECKING:
    from bertkit.model.auto import AnyModel

#: A run is called dead when its last training loss is not this share below the entropy of the labels.
DEAD_MARGIN = 0.02
#: A dead run that may be replaced ends after this share of its steps, but not before this many updates, which a slow
#: run needs (Zhang et al. 2021).
DEAD_FROM, DEAD_FROM_STEP = 0.5, 300


@dataclass(frozen=True, slots=True)
class Fit:
    """A finished training run; the model has its best weights and is in eval mode.

    dead: the training loss never fell below ``label_entropy``.
    label_entropy: loss of the label frequencies alone (nats; for regression the variance of the scores); None: the kind
        of task has none.
    last_weights: the trained parameters after the last step, where they are not the best ones.
    """

    model: AnyModel
    progression: Progression
    dead: bool
    label_entropy: float | None
    last_weights: Mapping[str, Tensor] | None


@dataclass(frozen=True, slots=True)
class Dev:
    """What the epochs of a run are compared on: labelled examples, and the same encoded."""

    examples: Sequence[Any]
    encoded: Encoded


@dataclass(frozen=True, slots=True)
class FitOptions(RunOptions):
    """Where a run keeps its state (``cache``: of a frozen encoder's features) and who follows it.

    end_when_dead: a run that is dead in its second half, after 300 updates or more, ends: another seed will replace it.
    """

    label: str = "fine-tuning"
    cache: Path | None = None
    end_when_dead: bool = False


def fit_classifier(
    model: AnyModel,
    task: TextTask,
    train: Ragged,
    dev: Ragged | None,
    config: FinetuneConfig,
    *,
    seed: int,
    **options: Any,
) -> Fit:
    """:func:`fit` for a text task whose rows are encoded; ``options`` are those of :class:`FitOptions`."""
    given = None if dev is None else Dev((), dev)
    return fit(model, workflow_of(task), train, given, config, seed=seed, options=FitOptions(**options))


def fit(
    model: AnyModel,
    workflow: AnyWorkflow,
    train: Encoded,
    dev: Dev | None,
    config: FinetuneConfig,
    *,
    seed: int,
    options: FitOptions = FitOptions(),
) -> Fit:
    """Train a model of :meth:`Workflow.new_model` in place. ``dev`` chooses the best epoch; None keeps the last."""
    workflow.set_up(model, train, config)
    floor = workflow.loss_floor(train, config)
    seed_generators(seed)
    if config.freeze_encoder and workflow.reads_vectors:
        parts = _frozen_parts(model, train, dev, config, seed, options.cache)
    else:
        if config.freeze_encoder:
            freeze_encoder(model)
        parts = _full_parts(model, workflow, train, dev, config, seed)
    callbacks = [*options.callbacks, *([_EndWhenDead(floor)] if options.end_when_dead else [])]
    callbacks += [_TellProgress()] if isinstance(parts.module, SparseComparison) else []
    options = replace(options, callbacks=callbacks, identity={**options.identity, "seed": seed})
    with only_used_words(parts.module, train.ids):
        trainer = _trainer(parts, workflow, dev, config, options)
        at = run_trainer(trainer, options)
        last = None
        if trainer.best is not None and at.best_step != at.step:
            with all_words(model):
                last = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
        trainer.restore_best()
    model.eval()
    return Fit(model, at, bool(at.epochs) and _is_dead(at.epochs[-1], floor), floor, last)


def _is_dead(epoch: Record, floor: float | None) -> bool:
    return floor is not None and bool(epoch["train_loss"] > (1 - DEAD_MARGIN) * floor)


class _EndWhenDead(Callback):
    """Ends a run after an epoch in its second half if it has learned nothing; ``floor``: the entropy of the labels."""

    def __init__(self, floor: float | None) -> None:
        self.floor = floor

    def on_epoch(self, trainer: AnyTrainer, record: Record) -> None:
        at, num_steps = trainer.at, trainer.options.num_steps
        if max(DEAD_FROM * num_steps, DEAD_FROM_STEP) <= at.step < num_steps and _is_dead(record, self.floor):
            say(f"{trainer.options.label}: loss {record['train_loss']:.4f} after step {at.step} of {num_steps}: dead")
            trainer.stop()


class _TellProgress(Callback):
    """Tells a model whose loss changes during the training where that is, also of a resumed one."""

    each_step: ClassVar[bool] = True  # the loss must not depend on when results are read

    def on_begin(self, trainer: AnyTrainer) -> None:
        self._tell(trainer)

    def on_step(self, trainer: AnyTrainer, record: Record) -> None:
        self._tell(trainer)

    def _tell(self, trainer: AnyTrainer) -> None:
        assert isinstance(trainer.model, SparseComparison)
        trainer.model.progress = trainer.at.step / trainer.options.num_steps


@dataclass(frozen=True, slots=True)
class _Parts:
    """What is trained: the module, its batches, and its outputs for dev (given what may stop the computation)."""

    module: nn.Module
    plan: Plan[Any]
    outputs: Callable[[Callable[[], None]], Any]


def _full_parts(
    model: AnyModel, workflow: AnyWorkflow, train: Encoded, dev: Dev | None, config: FinetuneConfig, seed: int
) -> _Parts:
    lengths, size = train.lengths.tolist(), config.batch_size * config.accumulation
    together = workflow.steps(train, size, seed, config)
    plan: Plan[Any]

    def collate(rows: list[int]) -> Any:
        return workflow.collate(train, rows)

    if together is not None:
        plan = WholeSteps(lengths, collate, together, None if workflow.compares_rows else config.max_tokens)
    else:
        plan = EpochPlan(lengths, collate, step_size=size, max_tokens=config.max_tokens, seed=seed)
    encoded = None if dev is None else dev.encoded

    def outputs(check: Check) -> Any:
        return workflow.outputs(workflow.scoring_engine(model), encoded, check=check, label="evaluating")

    return _Parts(model, plan, outputs)


def _frozen_parts(
    model: AnyModel, train: Encoded, dev: Dev | None, config: FinetuneConfig, seed: int, cache: Path | None
) -> _Parts:
    assert isinstance(model, CLASSIFIERS), "a workflow that reads vectors has such a model"
    assert isinstance(train, Ragged | GroupSet), "and these rows"
    vectors = torch.from_numpy(frozen_vectors(model, train, cache=cache, label="encoding train"))
    targets = {"labels": torch.from_numpy(np.asarray(train.labels))}
    if isinstance(train, Ragged) and train.weights is not None:
        targets["row_weights"] = torch.from_numpy(train.weights)
    windows = windows_apart(model, train)

    def batch_of(rows: list[int]) -> VectorBatch:
        chosen = {name: target[rows] for name, target in targets.items()}
        if windows is None:
            return VectorBatch(vectors[rows], chosen)
        each = torch.from_numpy(windows.sizes[rows])  # as in the full model, every window has the label of its text
        repeated = {name: target.repeat_interleave(each, dim=0) for name, target in chosen.items()}
        return VectorBatch(vectors[windows.sequences_of(rows)], repeated)

    size = config.batch_size * config.accumulation
    plan = EpochPlan([1] * len(train), batch_of, step_size=size, max_tokens=len(train), seed=seed, unit="rows")
    head = FrozenHead(model)
    if dev is None:
        return _Parts(head, plan, lambda check: None)
    encoded = dev.encoded
    assert isinstance(encoded, Ragged | GroupSet), "dev is encoded as train is"
    dev_vectors = frozen_vectors(model, encoded, cache=cache, label="encoding dev")
    return _Parts(head, plan, lambda check: head.logits(dev_vectors, encoded))


def _trainer(
    parts: _Parts, workflow: AnyWorkflow, dev: Dev | None, config: FinetuneConfig, options: FitOptions
) -> AnyTrainer:
    def evaluate(check: Callable[[], None]) -> dict[str, float]:
        assert dev is not None
        with all_words(parts.module):
            found = Predicted(dev.examples, dev.encoded, parts.outputs(check), {})
        return workflow.score(replace(found, decision=workflow.decide(found, config)))

    assert config.learning_rate is not None, "settings must be resolved"
    assert config.precision is not None, "settings must be resolved"
    num_steps = config.num_steps(parts.plan.steps_per_epoch)
    device = next(parts.module.parameters()).device
    groups = parameter_groups(
        parts.module,
        weight_decay=config.weight_decay,
        layer_decay=config.layer_decay,
        classifier_rate=workflow.classifier_rate,
    )
    original = config.protocol == "original"
    # The 2018 code keeps the last epoch; dev chooses between rates and numbers of epochs, not within a run.
    monitor = workflow.task.main_metric if dev is not None and config.keeps_best_epoch else None
    loop = replace(
        options.loop(config, num_steps, config.learning_rate, config.precision),
        monitor=monitor,
        patience=config.patience,
        compile=will_compile(config.compile, device, config.precision, num_steps, fits=not config.deterministic),
        deterministic=config.deterministic,
    )
    return make_trainer(
        parts.module,
        parts.plan,
        config,
        loop,
        optimizer=adamw(groups, learning_rate=config.learning_rate, bias_correction=not original),
        schedule=original_schedule(num_steps, warmup=config.warmup) if original else None,
        evaluate=None if dev is None else evaluate,
    )
