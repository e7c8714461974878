"""The files of a model in 8 bits: weights under bertkit's own names, and what was measured. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.checkpoints.huggingface import INT8_WEIGHTS
from bertkit.errors import CheckpointError
from bertkit.system.json_files import read_json

#: Beside the weights, what makes a folder one of a model in 8 bits.
FACTS = "quantization.json"
#: Of the files' layout.
VERSION = 1


@dataclass(frozen=True)
class Quantization:
    """What a folder says of its model.

    version: of the layout; model_class: what was quantized. bertkit: the version that did it.
    bits: of the weights. apart: inputs of each matrix that stay in float32. smoothing: see
        :class:`bertkit.quantization.byte_matrices.Scheme`.
    kept: matrices that stay in float32 because the answers need it.
    texts: how many the ranges come from. unknown: share of their tokens that are [UNK].
    measured: figures of the gate, by name.
    """

    version: int
    bertkit: str
    model_class: str
    bits: int
    apart: int
    smoothing: float
    kept: list[str]
    texts: int
    unknown: float
    measured: dict[str, Any]


def is_int8(folder: Path) -> bool:
    """Whether a folder holds a model in 8 bits, or what is left of one."""
    return (folder / FACTS).exists() or (folder / INT8_WEIGHTS).exists()


def read_quantization(folder: Path) -> Quantization:
    """What the folder of a model in 8 bits says of it.

    Raises:
        CheckpointError: a missing or damaged file, or one of a later version.
    """
    for name in (FACTS, INT8_WEIGHTS):
        if not (folder / name).exists():
            raise CheckpointError(f"{folder} has no {name}, so its model in 8 bits is incomplete; quantize it again")
    values = read_json(folder / FACTS, dict[str, Any])
    if values.get("version") != VERSION:
        raise CheckpointError(
            f"{folder / FACTS} is of version {values.get('version')!r}, and this bertkit reads version {VERSION}: "
            "quantize the original model again, or install the bertkit that wrote it"
        )
    return read_json(folder / FACTS, Quantization)
