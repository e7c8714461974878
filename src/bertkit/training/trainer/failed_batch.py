"""Save the batch whose loss or gradients were not finite, so that it can be inspected."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from bertkit.batch import Layout
from bertkit.errors import shorten
from bertkit.system.atomic_files import write_atomically
from bertkit.training.trainer.loop_options import StepResult


def save_failed_batch(
    folder: Path, result: StepResult, rows: Sequence[int], batches: Sequence[Any], rank: int = 0
) -> Path:
    """Write ``failed-step-N.safetensors``, the tensors, and the JSON file with rows and values that is returned."""
    tensors = {
        f"{number}/{name}": tensor.detach().cpu().contiguous()
        for number, batch in enumerate(batches)
        for name, tensor in _tensors_of(batch)
    }
    stem = folder / (f"failed-step-{result.step + 1:08d}" + (f"-rank{rank}" if rank else ""))
    write_atomically(stem.with_suffix(".safetensors"), save(tensors))
    values = {
        key: str(value) if key in ("loss", "losses", "grad_norm") else value for key, value in asdict(result).items()
    }
    write_atomically(stem.with_suffix(".json"), json.dumps({**values, "rows": list(rows)}, indent=2) + "\n")
    return stem.with_suffix(".json")


def explain_failure(result: StepResult, rows: Sequence[int], where: Path | None) -> str:
    """Why a step was not taken and what to do; ``where`` is what :func:`save_failed_batch` returned."""
    kept = f" The batch is saved in {where}." if where else ""
    return (
        f"the loss is {result.loss} and the gradient norm {result.grad_norm}; both must be finite. The step was not "
        f"taken, so the weights are those of step {result.step}. Rows of the batch: {shorten(rows, limit=8)}.{kept} "
        f"Look for a damaged row, or try a lower learning rate (now {result.learning_rate:.3g}) or a longer warm-up"
    )


def _tensors_of(batch: Any) -> Iterator[tuple[str, Tensor]]:
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Tensor):
            yield field.name, value
        elif isinstance(value, Layout):
            yield "lengths", torch.tensor(value.lengths)
        elif is_dataclass(value):
            yield from ((f"{field.name}.{key}", tensor) for key, tensor in _tensors_of(value))
        elif isinstance(value, Mapping):
            yield from ((f"{field.name}.{key}", tensor) for key, tensor in value.items())
