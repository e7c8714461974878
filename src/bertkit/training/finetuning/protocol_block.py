"""The protocol block of ``metrics.json``: without it, a score cannot be compared with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertkit.inference.protocol import hardware, versions
from bertkit.system.json_files import printable
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.hyperparameter_search import Search
from bertkit.training.finetuning.seed_run import Job


def protocol_block(job: Job, seeds: Sequence[int], search: Search | None) -> dict[str, Any]:
    """Everything that went into the scores.

    Args:
        job: the run, its settings resolved.
        seeds: the seeds that ran.
        search: what was tried before these settings were chosen, and on what.
    """
    config, task = job.config, job.workflow.task
    assert config.max_length is not None, "settings must be resolved"
    original = config.protocol == "original"
    best = f"epoch with the best dev {task.main_metric} (if equal, the lowest dev loss), of each seed"
    start = Path(job.start_name).expanduser()
    local = start.exists()
    return {
        "protocol": config.protocol,
        "split": "dev",
        "metrics": list(task.metrics),
        "main_metric": task.main_metric,
        **job.workflow.facts(config),
        "selection": best if config.keeps_best_epoch else "last epoch of each seed",
        "seeds": list(seeds),
        "start_checkpoint": {
            # Of a path the last two parts, which name the model but not its owner's folders.
            "name": printable("/".join(start.resolve().parts[-2:]).removeprefix("/")) if local else job.start_name,
            "sha256": job.identity["model_sha256"],
            "from_hub": not local,
        },
        "data": job.data.facts(config.max_length),
        **({} if config.pooling is None else {"pooling": config.pooling}),
        "what_is_trained": _what_is_trained(config, job.workflow.reads_vectors),
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
        "search": None if search is None else asdict(search),
        "versions": versions(),
        "hardware": hardware(job.device),
    }


def _what_is_trained(config: FinetuneConfig, reads_vectors: bool) -> str:
    if not config.freeze_encoder:
        return "all parameters"
    if not reads_vectors:
        return "head on a frozen encoder"
    kind = "[CLS]" if config.pooling in (None, "cls") else config.pooling
    return f"classification head on frozen {kind} features"
