"""The files of a model in 8 bits: weights under bertkit's own names, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from bertkit.checkpoints.int8_figures import Measured
from bertkit.checkpoints.weight_files import INT8_FACTS, INT8_WEIGHTS
from bertkit.errors import CheckpointError
from bertkit.system.json_files import read_json
from bertkit.system.validated_settings import Field

VERSION = 1
#: Of weights; 7 for processors that add up products of bytes in 16 bits.
Bits = Literal[8, 7]
#: Floats in the vectors of a library that has no products of bytes at all.
PLAIN_LANES = 4

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Quantization:
    """What a folder says of its model.

    apart: inputs of each matrix in float32. smoothing: see :class:`~bertkit.quantization.byte_matrices.Scheme`.
    kept: matrices in float32. texts: number that gave the ranges. unknown: share of their tokens that are [UNK].
    """

    version: int
    bertkit: str
    model_class: str
    bits: Bits
    apart: Count
    smoothing: Annotated[float, Field(ge=0.0, le=1.0)]
    kept: list[str]
    texts: Count
    unknown: Annotated[float, Field(ge=0.0, le=1.0)]
    measured: Measured


class ByteProducts(Protocol):
    """What of :class:`bertkit.engine.native.library.NativeLibrary` decides how fast bytes are."""

    @property
    def lanes(self) -> int: ...
    @property
    def fast_bytes(self) -> bool: ...


def best_bits(library: ByteProducts | None) -> Bits:
    """The bits of weights that suit a processor, by its compiled encoder."""
    return 8 if library is None or library.fast_bytes or library.lanes == PLAIN_LANES else 7


def slow_here(facts: Quantization, library: ByteProducts | None) -> str | None:
    """Why a model in 8 bits gains nothing on this processor, and what to do, in a line; None where it does gain."""
    if library is None:
        return (
            "a model in 8 bits is slow without the compiled encoder: install a C compiler, or: pip install "
            "'bertkit[native]'; or use the original model"
        )
    if library.fast_bytes or (facts.bits == best_bits(library) == 7):
        return None
    then = "" if library.lanes == PLAIN_LANES else "quantize the original model again with --bits 7, or "
    return f"a model with weights in {facts.bits} bits is slow on this processor: {then}use the original model"


def read_quantization(folder: Path) -> Quantization:
    """What the folder of a model in 8 bits says of it."""
    for name in (INT8_FACTS, INT8_WEIGHTS):
        if not (folder / name).exists():
            raise CheckpointError(f"{folder} has no {name}, so its model in 8 bits is incomplete; quantize it again")
    values = read_json(folder / INT8_FACTS, dict[str, Any])
    if values.get("version") != VERSION:
        raise CheckpointError(
            f"{folder / INT8_FACTS} is of version {values.get('version')!r}, and this bertkit reads version {VERSION}: "
            "quantize the original model again, or install the bertkit that wrote it"
        )
    return read_json(folder / INT8_FACTS, Quantization)
