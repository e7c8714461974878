"""Apply a name table to torch's tensors: values of a file for our model, and those of our model under its names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping

import torch
from torch import Tensor

from bertkit.checkpoints.match import Match
from bertkit.checkpoints.read_values import read_values
from bertkit.checkpoints.rules import ClassSpec, ModelConfig, NameTable, with_current_ending
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


def take_theirs(
    state: MutableMapping[str, Tensor],
    prefix: str,
    config: ModelConfig,
    spec: ClassSpec,
    table: NameTable,
    ties: Mapping[str, str],
) -> None:
    """Put what ``state`` holds under the names of the file format, after ``prefix``, under ours; leave all else.

    A tensor that is made of several is made where all of them are there. Copies that equal what the model ties them
    to, and tensors without effect, are removed.
    """
    names = {with_current_ending(name): name for name in state if name.startswith(prefix)}
    rules = [(ours, theirs) for _, ours, theirs in table.names(spec, config)]
    inner = table.prefix if spec.base_prefix else ""
    known = {name for _, theirs in rules for name in theirs}
    for copy, original in ties.items():
        tied = next((prefix + each + copy for each in ("", inner) if prefix + each + copy in names), None)
        first = prefix + (original if original in known else inner + original)
        if tied is not None and first not in names:
            names[first] = names[tied]
        elif tied is not None and torch.equal(state[names[tied]], state[names[first]]):
            del state[names[tied]]
    for name in table.ignored:
        state.pop(prefix + inner + name, None)
    for ours, theirs in rules:
        found = [names.get(prefix + name) for name in theirs]
        if prefix + ours not in state and all(name is not None for name in found):
            state[prefix + ours] = torch.cat([state.pop(name) for name in found if name is not None])
