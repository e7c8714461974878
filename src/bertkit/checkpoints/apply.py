"""Apply a name table to torch's tensors: values of a file for our model, and those of our model under its names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from bertkit.checkpoints.match import Match
from bertkit.checkpoints.read_values import read_values
from bertkit.checkpoints.rules import ClassSpec, ModelConfig, NameTable
from bertkit.checkpoints.safetensors_format import TensorInfo
from bertkit.errors import CheckpointError

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def to_ours(match: Match, tensors: Mapping[str, TensorInfo], dtype: torch.dtype) -> dict[str, Tensor]:
    """What :func:`~bertkit.checkpoints.read_values.read_values` gives, as tensors on the CPU."""
    values = read_values(match, tensors, _NAMES[dtype])
    return {name: torch.from_numpy(array).view(dtype) for name, array in values.items()}


def to_theirs(
    state: Mapping[str, Tensor], config: ModelConfig, spec: ClassSpec, table: NameTable
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a ``state_dict()`` under the names of the file format, contiguous on the CPU, without copies."""
    left = dict(state)
    for _, ours, theirs in table.names(spec, config):
        tensor = left.pop(ours, None)
        if tensor is not None:
            yield from zip(theirs, tensor.detach().to("cpu").contiguous().chunk(len(theirs)), strict=True)
    if left:
        raise CheckpointError(
            f"the name table of {table.family} has no names for {sorted(left)}; this class cannot be saved"
        )
