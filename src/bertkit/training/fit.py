"""Train a sequence classifier on features: what :func:`bertkit.training.finetune.finetune` does once per seed.

Here is the only place where settings become a model, an optimizer, a schedule, a plan and a :class:`Trainer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.checkpoints.huggingface import config_path
from bertkit.config import BertConfig
from bertkit.features import FeatureSet, collate
from bertkit.model.bert import BertForSequenceClassification
from bertkit.optim import Schedule, adamw, linear_schedule, original_schedule, parameter_groups
from bertkit.sources import resolve
from bertkit.tasks import TextTask
from bertkit.training.frozen import FrozenHead, VectorBatch, pooled_vectors
from bertkit.training.generators import seed_generators
from bertkit.training.loop import Evaluate, LoopOptions, Progression, Trainer
from bertkit.training.plan import EpochPlan
from bertkit.training.scoring import Floats, predict_logits, score_logits
from bertkit.training.settings import FinetuneConfig

#: A run is called dead when its last training loss is not this share below the entropy of the labels.
DEAD_MARGIN = 0.02


@dataclass(frozen=True, slots=True)
class Fit:
    """A finished training run.

    model: with the best weights, in eval mode.
    progression: epochs, best step, whether it stopped early.
    dead: the training loss never fell below what the label frequencies alone give.
    label_entropy: that bound (nats; for regression the variance of the scores).
    last_weights: the parameters after the last step, where they are not the best ones.
    """

    model: BertForSequenceClassification
    progression: Progression
    dead: bool
    label_entropy: float
    last_weights: Mapping[str, Tensor] | None


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
    same = "BertForSequenceClassification" in (file.architectures or ()) and file.id2label == task.id2label
    return BertForSequenceClassification.from_pretrained(
        path, id2label=task.id2label, problem_type=task.problem_type, new_head=not same, seed=seed, device=device
    )


def fit_classifier(
    model: BertForSequenceClassification,
    task: TextTask,
    train: FeatureSet,
    dev: FeatureSet | None,
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
) -> Fit:
    """Train to the end; the model is changed in place.

    Args:
        model: from :func:`new_classifier`.
        task: names the metrics.
        train: labelled rows.
        dev: labelled rows that choose the best epoch; None keeps the last.
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

    Raises:
        TrainingError, Interrupted, ResourceError, CheckpointError: see :meth:`Trainer.run`.
    """
    assert train.labels is not None, "training rows have labels"
    model.class_weights = class_weights(task, train, config)
    seed_generators(seed)
    trainer: Trainer[Any]
    if config.freeze_encoder:
        trainer = _frozen_trainer(model, task, train, dev, config, seed, cache)
    else:
        trainer = _full_trainer(model, task, train, dev, config, seed)
    trainer.log, trainer.folder = log, folder
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
    entropy = label_entropy(task, train, model.class_weights)
    dead = bool(at.epochs) and at.epochs[-1]["train_loss"] > (1 - DEAD_MARGIN) * entropy
    return Fit(model, at, dead, entropy, last)


def _full_trainer(
    model: BertForSequenceClassification,
    task: TextTask,
    train: FeatureSet,
    dev: FeatureSet | None,
    config: FinetuneConfig,
    seed: int,
) -> Trainer[Batch]:
    plan = EpochPlan(
        train.lengths.tolist(),
        lambda rows: collate(train, rows, task.kind),
        step_size=config.batch_size * config.accumulation,
        max_tokens=config.max_tokens,
        seed=seed,
    )

    def evaluate(check: Callable[[], None]) -> dict[str, float]:
        assert dev is not None
        assert dev.labels is not None
        return score_logits(task, predict_logits(model, dev, check=check, label="evaluating"), dev.labels)

    return _trainer(model, plan, task, config, evaluate if dev is not None else None)


def _frozen_trainer(
    model: BertForSequenceClassification,
    task: TextTask,
    train: FeatureSet,
    dev: FeatureSet | None,
    config: FinetuneConfig,
    seed: int,
    cache: Path | None,
) -> Trainer[VectorBatch]:
    vectors = torch.from_numpy(pooled_vectors(model, train, cache=cache, label="encoding train"))
    labels = torch.from_numpy(np.asarray(train.labels))
    plan = EpochPlan(
        [1] * len(train),
        lambda rows: VectorBatch(vectors[rows], {"labels": labels[rows]}),
        step_size=config.batch_size * config.accumulation,
        max_tokens=len(train),
        seed=seed,
        unit="rows",
    )
    head = FrozenHead(model)
    dev_vectors: Floats | None = None
    if dev is not None:
        dev_vectors = pooled_vectors(model, dev, cache=cache, label="encoding dev")

    def evaluate(check: Callable[[], None]) -> dict[str, float]:
        assert dev is not None
        assert dev.labels is not None
        assert dev_vectors is not None
        return score_logits(task, head.logits(dev_vectors), dev.labels)

    return _trainer(head, plan, task, config, evaluate if dev is not None else None)


def _trainer(
    module: nn.Module, plan: EpochPlan[Any], task: TextTask, config: FinetuneConfig, evaluate: Evaluate | None
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
        monitor=task.main_metric if evaluate is not None else None,
        patience=config.patience,
        checkpoint_every_s=config.checkpoint_every_s,
    )
    return Trainer(module, plan, optimizer, _schedule(config, num_steps), options, evaluate=evaluate)


def _schedule(config: FinetuneConfig, num_steps: int) -> Schedule:
    make = original_schedule if config.protocol == "original" else linear_schedule
    return make(num_steps, warmup=config.warmup)


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
