"""Apply a name table to tensors: values of a file for our model, and values of our model under the file's names.

For what happens to memory maps when the file changes, see ``docs/decisions/0020-strict-loading.md``.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from bertkit.checkpoints.match import Match, Row, Status
from bertkit.checkpoints.rules import ClassSpec, ModelConfig, NameTable
from bertkit.checkpoints.safetensors_format import TensorInfo, first_not_finite, tensor_values
from bertkit.errors import CheckpointError
from bertkit.system.untrusted_files import open_regular, read_at

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_CHECK_BYTES = 1 << 20
_THREADS = 4


def to_ours(match: Match, tensors: Mapping[str, TensorInfo], dtype: torch.dtype) -> dict[str, Tensor]:
    """Values of a file that matches without problems, on the CPU, by our names; checks that they are finite and tied.

    Unchanged tensors become private memory maps of the file; those that are stacked or converted are read into place.
    """
    assert not match.problems

    def place(row: Row) -> tuple[str, int]:
        return str(tensors[row.theirs[0]].file), tensors[row.theirs[0]].start

    rows = sorted(match.of(Status.EXACT), key=place)
    files = {tensors[name].file for row in rows for name in row.theirs}
    with _Reader(files) as reader, ThreadPoolExecutor(_THREADS) as threads:
        wholes = list(threads.map(lambda row: _values(reader, row, tensors, dtype), rows))
    by_name: dict[str, Tensor] = {}
    for row, whole in zip(rows, wholes, strict=True):
        by_name |= zip(row.theirs, whole.chunk(len(row.theirs)), strict=True)
    _check_ties(match, tensors, by_name, dtype)
    return {row.ours: whole for row, whole in zip(rows, wholes, strict=True)}


def _values(reader: _Reader, row: Row, tensors: Mapping[str, TensorInfo], dtype: torch.dtype) -> Tensor:
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
    with _Reader(tensors[copy].file for copy, _ in pairs) as reader:
        for copy, original in pairs:
            again = torch.empty(tensors[copy].shape, dtype=dtype)
            reader.read(tensors[copy], again)
            if not torch.equal(again, by_name[original]):
                raise CheckpointError(
                    f"{tensors[copy].file}: {copy!r} differs from {original!r}, to which this model ties it. bertkit "
                    "computes only tied models; one with its own decoder would give other results"
                )


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


class _Reader:
    """The open files of one checkpoint, for several threads at once. Maps outlive it in the tensors made from them."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._stack = ExitStack()
        self._files = sorted(set(files))
        self._streams: dict[Path, BufferedReader] = {}
        self._maps: dict[Path, mmap.mmap | None] = {}
        self._own = threading.local()

    def __enter__(self) -> Self:
        for file in self._files:
            stream = self._streams[file] = self._stack.enter_context(open_regular(file))
            try:
                self._maps[file] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
            except (OSError, ValueError):  # some network file systems cannot map; then everything is read
                self._maps[file] = None
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        self._maps.clear()

    def map(self, info: TensorInfo) -> Tensor | None:
        """A tensor on the pages of the file, copied on write; None if that is impossible.

        Its values are checked through a small buffer, so that its pages take no memory before they are used.
        """
        dtype, pages = DTYPES[info.dtype], self._maps[info.file]
        if info.sum is not None or pages is None or info.start % dtype.itemsize or len(pages) < info.end:
            return None
        if not hasattr(self._own, "buffer"):
            self._own.buffer = torch.empty(_CHECK_BYTES, dtype=torch.uint8)
        done = info.start
        while done < info.end:
            part = self._own.buffer[: min(info.end - done, _CHECK_BYTES)]
            self._fill(part, info, done)
            _check_finite(info, part.view(dtype), (done - info.start) // dtype.itemsize)
            done += len(part)
        return torch.frombuffer(pages, dtype=dtype, count=info.num_values, offset=info.start).view(info.shape)

    def read(self, info: TensorInfo, out: Tensor) -> None:
        """Fill ``out``, a contiguous CPU tensor of the right shape and any float type; checks the final values."""
        if info.sum is not None:
            out.copy_(torch.from_numpy(tensor_values(info)))
            _check_finite(info, out.view(-1), 0)
            return
        target = out if out.dtype == DTYPES[info.dtype] else torch.empty(info.shape, dtype=DTYPES[info.dtype])
        self._fill(target.view(-1).view(torch.uint8), info, info.start)
        if target is not out:
            out.copy_(target)
        _check_finite(info, out.view(-1), 0)

    def _fill(self, target: Tensor, info: TensorInfo, start: int) -> None:
        """Bytes of the file from ``start`` on, into a flat uint8 tensor."""
        read_at(self._streams[info.file], memoryview(target.numpy()), start, repr(info.name))  # type: ignore[arg-type]


def _check_finite(info: TensorInfo, flat: Tensor, offset: int) -> None:
    """Refuse values that are not finite; ``flat`` has those of a tensor from ``offset`` on, in their final type."""
    first = first_not_finite(flat.view(torch.uint8).numpy(), _NAMES[flat.dtype])
    if first is None:
        return
    place = [int(number) for number in np.unravel_index(offset + first, info.shape)]
    raise CheckpointError(
        f"{info.file}: tensor {info.name!r} has values that are not finite in {flat.dtype} (the first at {place} is "
        f"{float(flat[first])}). The file is damaged, or its training diverged"
    )
