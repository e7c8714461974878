"""The protocol block of ``metrics.json``: without it, a score cannot be compared with another (design D9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bertkit.inference.protocol import hardware, versions
from bertkit.tasks.registry import Task
from bertkit.training.finetuning.finetune_settings import FinetuneConfig


def protocol_block(
    task: Task,
    config: FinetuneConfig,
    *,
    start: dict[str, Any],
    data: dict[str, Any],
    seeds: Sequence[int],
    device: torch.device | str | None,
    facts: Mapping[str, Any],
    reads_vectors: bool = True,
    search: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything that went into the scores.

    Args:
        task: names the metrics.
        config: resolved settings.
        start: the start checkpoint: name and ``sha256`` of its weights.
        data: see :meth:`bertkit.training.finetuning.task_data.TaskData.facts`.
        seeds: the seeds that ran.
        device: where.
        facts: see :meth:`bertkit.tasks.workflow.Workflow.facts`.
        reads_vectors: whether a frozen encoder ran once, and the head was trained on its vectors.
        search: what was tried before these settings were chosen, and on what.
    """
    original = config.protocol == "original"
    return {
        "protocol": config.protocol,
        "split": "dev",
        "metrics": list(task.metrics),
        "main_metric": task.main_metric,
        **facts,
        "selection": f"epoch with the best dev {task.main_metric}, of each seed"
        if config.keeps_best_epoch
        else "last epoch of each seed",
        "seeds": list(seeds),
        "start_checkpoint": start,
        "data": data,
        **({} if config.pooling is None else {"pooling": config.pooling}),
        "what_is_trained": _what_is_trained(config, reads_vectors),
        "learning_rate": config.learning_rate,
        "epochs": config.epochs,
        "batch_size": config.batch_size * config.accumulation,
        "optimizer": "Adam with decoupled weight decay, " + ("no bias correction" if original else "bias-corrected"),
        "betas": [0.9, 0.999],
        "eps": 1e-6,
        "weight_decay": config.weight_decay,
        "layer_decay": config.layer_decay,
        "warmup": config.warmup,
        "schedule": "linear warm-up from 0, linear decay" if original else "linear warm-up, linear decay to 0",
        "max_grad_norm": config.max_grad_norm,
        "precision": config.precision,
        "class_weights": config.class_weights,
        "patience": config.patience,
        "search": search,
        "versions": versions(),
        "hardware": hardware(device),
    }


def _what_is_trained(config: FinetuneConfig, reads_vectors: bool) -> str:
    if not config.freeze_encoder:
        return "all parameters"
    if not reads_vectors:
        return "head on a frozen encoder"
    kind = "[CLS]" if config.pooling in (None, "cls") else config.pooling
    return f"classification head on frozen {kind} features"
