"""Apply a name table to tensors: values of a file for our model, and values of our model under the file's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from bertkit.checkpoints.match import Match, Row, Status
from bertkit.checkpoints.rules import ClassSpec, NameTable, Op
from bertkit.checkpoints.safetensors_header import TensorInfo
from bertkit.checkpoints.safetensors_reader import DTYPES, Reader
from bertkit.config.bert_config import BertConfig
from bertkit.errors import CheckpointError

_THREADS = 4


def to_ours(match: Match, tensors: Mapping[str, TensorInfo], dtype: torch.dtype) -> dict[str, Tensor]:
    """Values of a matched file for our model.

    Unchanged tensors become private memory maps of the file; those that are stacked or converted are read directly into
    place (the three projections of attention into one matrix). Nothing is copied twice.

    Args:
        match: the table, without problems.
        tensors: location of each tensor in the file.
        dtype: type of the result.

    Returns:
        Tensors on the CPU by our names.

    Raises:
        CheckpointError: a value that is not finite (in the file, or too large for ``dtype``), a tied tensor that
            differs from its original, or a file that changed while it was read. Names tensor and file.
    """
    assert not match.problems
    rows = sorted(match.of(Status.EXACT), key=lambda row: _place(tensors[row.theirs[0]]))
    files = {tensors[name].file for row in rows for name in row.theirs}
    with Reader(files) as reader, ThreadPoolExecutor(_THREADS) as threads:
        pieces = list(threads.map(lambda row: _values(reader, row, tensors, dtype), rows))
    state = {row.ours: whole for row, (whole, _) in zip(rows, pieces, strict=True)}
    by_name = {
        name: part
        for row, (_, parts) in zip(rows, pieces, strict=True)
        for name, part in zip(row.theirs, parts, strict=True)
    }
    _check_ties(match, tensors, by_name, dtype)
    return state


def _values(
    reader: Reader, row: Row, tensors: Mapping[str, TensorInfo], dtype: torch.dtype
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Our tensor of a row, and the part of it that comes from each of theirs."""
    first = tensors[row.theirs[0]]
    if len(row.theirs) == 1 and DTYPES[first.dtype] == dtype:
        mapped = reader.map(first)
        if mapped is not None:
            return mapped, (mapped,)
    whole = torch.empty(row.shape, dtype=dtype)
    parts = whole.chunk(len(row.theirs))
    for name, part in zip(row.theirs, parts, strict=True):
        reader.read(tensors[name], part)
    return whole, parts


def _place(info: TensorInfo) -> tuple[str, int]:
    return str(info.file), info.start


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
    """Our tensors under the names of the file format, without ties and buffers.

    Args:
        state: ``state_dict()`` of a model of the class.
        config: of the model.
        spec: the class.
        table: names of the family.

    Yields:
        (name in the file, contiguous CPU tensor; for a stacked one a view of its part).
    """
    left = dict(state)
    for part in spec.parts:
        prefix = table.written_prefix(part, spec.base_prefix)
        for rule in table.rules(part, config):
            tensor = left.pop(prefix + rule.ours, None)
            if tensor is None:
                continue
            tensor = tensor.detach().to("cpu").contiguous()
            written = (table.prefix if prefix else "", rule.theirs)
            pieces = tensor.chunk(len(rule.theirs)) if rule.op is Op.STACK else (tensor,)
            yield from zip((written[0] + name for name in written[1]), pieces, strict=True)
    if left:
        raise CheckpointError(
            f"the name table of {table.family} has no names for {sorted(left)}; this class cannot be saved"
        )
