"""Keep the batch that broke a run, so that it can be looked at."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save
from torch import Tensor

from bertkit.batch import Layout
from bertkit.system.atomic_files import write_atomically

if TYPE_CHECKING:
    from bertkit.training.trainer.loop import StepResult


def save_failed_batch(
    folder: Path, result: StepResult, rows: Sequence[int], batches: Sequence[Any], rank: int = 0
) -> Path:
    """Write ``failed-step-N.safetensors`` (the tensors of each micro-batch) and ``failed-step-N.json`` (rows, values).

    Args:
        folder: the run's checkpoint folder.
        result: what was measured in the step.
        rows: numbers of the training examples in it.
        batches: its micro-batches, dataclasses of tensors.
        rank: of this process; ranks other than 0 keep their part under ``failed-step-N-rankR``.

    Returns:
        Path of the JSON file.
    """
    tensors = {
        f"{number}/{name}": tensor.detach().cpu().contiguous()
        for number, batch in enumerate(batches)
        for name, tensor in _tensors_of(batch)
    }
    stem = folder / (f"failed-step-{result.step + 1:08d}" + (f"-rank{rank}" if rank else ""))
    write_atomically(stem.with_suffix(".safetensors"), save(tensors))
    told = {
        key: str(value) if key in ("loss", "losses", "grad_norm") else value for key, value in asdict(result).items()
    }
    write_atomically(stem.with_suffix(".json"), json.dumps({**told, "rows": list(rows)}, indent=2) + "\n")
    return stem.with_suffix(".json")


def _tensors_of(batch: Any) -> Iterator[tuple[str, Tensor]]:
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Tensor):
            yield field.name, value
        elif isinstance(value, Layout):
            yield "lengths", torch.tensor(value.lengths)
        elif isinstance(value, Mapping):
            yield from ((f"{field.name}.{key}", tensor) for key, tensor in value.items())
