"""Apply a name table to tensors: values of a file for our model, and values of our model under the file's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from bertkit.checkpoints.match import Match, Row, Status
from bertkit.checkpoints.rules import ClassSpec, NameTable
from bertkit.checkpoints.safetensors_format import TensorInfo
from bertkit.checkpoints.safetensors_reader import DTYPES, Reader
from bertkit.config.bert_config import BertConfig
from bertkit.errors import CheckpointError

_THREADS = 4


def to_ours(match: Match, tensors: Mapping[str, TensorInfo], dtype: torch.dtype) -> dict[str, Tensor]:
    """Values of a file that matches without problems, on the CPU, by our names.

    Unchanged tensors become private memory maps of the file; those that are stacked or converted are read directly into
    place (the three projections of attention into one matrix). Nothing is copied twice.

    Raises:
        CheckpointError: a value that is not finite (in the file, or too large for ``dtype``), a tied tensor that
            differs from its original, or a file that changed while it was read. Names tensor and file.
    """
    assert not match.problems

    def place(row: Row) -> tuple[str, int]:
        return str(tensors[row.theirs[0]].file), tensors[row.theirs[0]].start

    rows = sorted(match.of(Status.EXACT), key=place)
    files = {tensors[name].file for row in rows for name in row.theirs}
    with Reader(files) as reader, ThreadPoolExecutor(_THREADS) as threads:
        wholes = list(threads.map(lambda row: _values(reader, row, tensors, dtype), rows))
    by_name: dict[str, Tensor] = {}
    for row, whole in zip(rows, wholes, strict=True):
        by_name |= zip(row.theirs, whole.chunk(len(row.theirs)), strict=True)
    _check_ties(match, tensors, by_name, dtype)
    return {row.ours: whole for row, whole in zip(rows, wholes, strict=True)}


def _values(reader: Reader, row: Row, tensors: Mapping[str, TensorInfo], dtype: torch.dtype) -> Tensor:
    """Our tensor of a row."""
    first = tensors[row.theirs[0]]
    if len(row.theirs) == 1 and DTYPES[first.dtype] == dtype and (mapped := reader.map(first)) is not None:
        return mapped
    whole = torch.empty(row.shape, dtype=dtype)
    for name, part in zip(row.theirs, whole.chunk(len(row.theirs)), strict=True):
        reader.read(tensors[name], part)
    return whole


def _check_ties(
    match: Match, tensors: Mapping[str, TensorInfo], by_name: Mapping[str, Tensor], dtype: torch.dtype
) -> None:
    """Compare the copies of tied tensors in the file with their originals."""
    pairs = [row.theirs for row in match.of(Status.TIED)]
    with Reader(tensors[copy].file for copy, _ in pairs) as reader:
        for copy, original in pairs:
            again = torch.empty(tensors[copy].shape, dtype=dtype)
            reader.read(tensors[copy], again)
            if not torch.equal(again, by_name[original]):
                raise CheckpointError(
                    f"{tensors[copy].file}: {copy!r} differs from {original!r}, to which this model ties it. bertkit "
                    "computes only tied models; one with its own decoder would give other results"
                )


def to_theirs(
    state: Mapping[str, Tensor], config: BertConfig, spec: ClassSpec, table: NameTable
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a ``state_dict()`` under the names of the file format, contiguous CPU tensors.

    Those that are stacked here are views. Copies of tied tensors and buffers are left out.
    """
    left = dict(state)
    for part in spec.parts:
        prefix = table.written_prefix(part, spec.base_prefix)
        for rule in table.rules(part, config):
            tensor = left.pop(prefix + rule.ours, None)
            if tensor is None:
                continue
            names = ((table.prefix if prefix else "") + name for name in rule.theirs)
            yield from zip(names, tensor.detach().to("cpu").contiguous().chunk(len(rule.theirs)), strict=True)
    if left:
        raise CheckpointError(
            f"the name table of {table.family} has no names for {sorted(left)}; this class cannot be saved"
        )
