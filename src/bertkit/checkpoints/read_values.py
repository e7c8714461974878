"""The values of a checkpoint that fits a class, as numpy arrays by our names: finite, and tied as the model ties them.

For what happens to memory maps when the file changes, see ``docs/decisions/0020-strict-loading.md``.
"""

from __future__ import annotations

import math
import mmap
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bertkit.checkpoints.match import Match, Row, Status
from bertkit.checkpoints.safetensors_format import TensorInfo, Values, first_not_finite, tensor_values
from bertkit.errors import CheckpointError
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.system.untrusted_files import open_regular, read_at

#: Float types of files: what numpy has for them (bfloat16, which it lacks, as the bits), and their names.
KINDS: Mapping[str, npt.DTypeLike] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_CHECK_BYTES = 1 << 20
_BLOCK_BYTES = 16 << 20
_THREADS = 4


def read_values(
    match: Match, tensors: Mapping[str, TensorInfo], kind: str = "F32", *, in_memory: bool = False
) -> dict[str, Values]:
    """Values of a file that matches without problems, in the type ``kind``, a key of :data:`KINDS`.

    Unchanged tensors become private memory maps of the file, unless all are to be ``in_memory``, where no change of the
    file reaches them; those that are stacked or converted are read into place.

    Raises:
        CheckpointError: a value that is not finite in the type, or a tied tensor that differs from its original.
    """
    assert not match.problems

    def place(row: Row) -> tuple[str, int]:
        return str(tensors[row.theirs[0]].file), tensors[row.theirs[0]].start

    rows = sorted(match.of(Status.EXACT), key=place)
    infos = [tensors[name] for row in rows for name in row.theirs]
    with _Reader(info.file for info in infos) as reader:
        if in_memory or not all(info.is_finite and info.dtype == kind for info in infos):
            from concurrent.futures import ThreadPoolExecutor  # takes .01 s, and may not be needed

            with ThreadPoolExecutor(_THREADS) as threads:
                wholes = list(threads.map(lambda row: _values(reader, row, tensors, kind, in_memory), rows))
        else:
            wholes = [_values(reader, row, tensors, kind, in_memory) for row in rows]
    by_name: dict[str, Values] = {}
    for row, whole in zip(rows, wholes, strict=True):
        by_name |= zip(row.theirs, np.split(whole, len(row.theirs)), strict=True)
    _check_ties(match, tensors, by_name, kind)
    return {row.ours: whole for row, whole in zip(rows, wholes, strict=True)}


def drop_pages(values: Values) -> None:
    """Give back the memory of values that are mapped; they are read from the file again if they are used."""
    pages: Any = values.base
    while isinstance(pages, np.ndarray | memoryview):
        pages = pages.base if isinstance(pages, np.ndarray) else pages.obj
    if not isinstance(pages, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = values.ctypes.data - np.frombuffer(pages, np.uint8, 1).ctypes.data
    first, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, (start + values.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > first:
        pages.madvise(mmap.MADV_DONTNEED, first, end - first)


def as_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The bits of the nearest bfloat16, that with an even last bit if two are as near; of NaN a NaN."""
    bits = np.ascontiguousarray(values).view("<u4")
    rounded = (bits + (0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def _converted(values: Values, of: str, to: str) -> Values:
    """Floats of one type of :data:`KINDS` as another; narrow ones are rounded from float32, as torch does it."""
    if of == to:
        return values
    floats = (values.astype("<u4") << 16).view("<f4") if of == "BF16" else values
    if to == "F64":
        return floats.astype(np.float64)
    with np.errstate(over="ignore"):  # what becomes infinite is refused afterwards
        singles = floats.astype(np.float32)
        return as_bfloat16(singles) if to == "BF16" else singles.astype(KINDS[to])


def _values(reader: _Reader, row: Row, tensors: Mapping[str, TensorInfo], kind: str, in_memory: bool) -> Values:
    first = tensors[row.theirs[0]]
    if not in_memory and len(row.theirs) == 1 and first.dtype == kind and (mapped := reader.map(first)) is not None:
        return mapped
    dtype = np.dtype(KINDS[kind])
    whole = np.empty(row.shape, dtype) if in_memory else reader.pages.array(row.shape, dtype)
    for name, part in zip(row.theirs, np.split(whole, len(row.theirs)), strict=True):
        reader.read(tensors[name], part, kind)
    return whole


class _OwnPages:
    """Memory that goes back to the system with the arrays in it, or part by part by :func:`drop_pages`.

    Taken in blocks, in pages of 2 MB if the system has them: with small ones, the first use takes longer than reading.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._block: mmap.mmap | None = None
        self._used = 0

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Values:
        """A new array; small ones are plain."""
        count = math.prod(shape)
        size = count * dtype.itemsize
        if size < _CHECK_BYTES:
            return np.empty(shape, dtype)
        with self._lock:
            if self._block is None or len(self._block) - self._used < size:
                try:
                    self._block, self._used = mmap.mmap(-1, max(size, _BLOCK_BYTES), access=mmap.ACCESS_COPY), 0
                except OSError:  # a system without maps
                    return np.empty(shape, dtype)
                if hasattr(mmap, "MADV_HUGEPAGE"):
                    with suppress(OSError):  # a kernel without them
                        self._block.madvise(mmap.MADV_HUGEPAGE)
            start, block = self._used, self._block
            self._used += -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        return np.frombuffer(block, dtype, count, start).reshape(shape)


def _check_ties(match: Match, tensors: Mapping[str, TensorInfo], by_name: Mapping[str, Values], kind: str) -> None:
    """Compare the copies of tied tensors in the file with their originals."""
    pairs = [row.theirs for row in match.of(Status.TIED)]
    with _Reader(tensors[copy].file for copy, _ in pairs) as reader:
        for copy, original in pairs:
            again = np.empty(tensors[copy].shape, KINDS[kind])
            reader.read(tensors[copy], again, kind)
            if not np.array_equal(again, by_name[original]):
                raise CheckpointError(
                    f"{tensors[copy].file}: {copy!r} differs from {original!r}, to which this model ties it. bertkit "
                    "computes only tied models; one with its own decoder would give other results"
                )


class _Reader:
    """The open files of one checkpoint, for several threads at once. Maps outlive it in the arrays made from them."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._stack = ExitStack()
        self._files = sorted(set(files))
        self._streams: dict[Path, BufferedReader] = {}
        self._maps: dict[Path, mmap.mmap | None] = {}
        self._own = threading.local()
        self.pages = _OwnPages()

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

    def map(self, info: TensorInfo) -> Values | None:
        """A tensor on the pages of the file, copied on write; None if that is impossible.

        Unless they were seen already, its values are checked through a small buffer, so that its pages take no memory
        before they are used.
        """
        dtype, pages = np.dtype(KINDS[info.dtype]), self._maps[info.file]
        if info.sum is not None or pages is None or info.start % dtype.itemsize or len(pages) < info.end:
            return None
        if not info.is_finite and not hasattr(self._own, "buffer"):
            self._own.buffer = np.frombuffer(mmap.mmap(-1, _CHECK_BYTES), np.uint8)  # goes back to the system
        done = info.end if info.is_finite else info.start
        while done < info.end:
            part = self._own.buffer[: min(info.end - done, _CHECK_BYTES)]
            self._fill(part, info, done)
            _check_finite(info, part.view(dtype), info.dtype, (done - info.start) // dtype.itemsize)
            done += len(part)
        return np.frombuffer(pages, dtype, info.num_values, info.start).reshape(info.shape)

    def read(self, info: TensorInfo, out: Values, kind: str) -> None:
        """Fill ``out``, contiguous, of the right shape and the type ``kind``; checks the final values."""
        if info.sum is not None:
            out[...] = _converted(tensor_values(info), "F64", kind)
        elif info.dtype == kind:
            self._fill(out.reshape(-1).view(np.uint8), info, info.start)
        else:
            found = np.empty(info.shape, KINDS[info.dtype])
            self._fill(found.reshape(-1).view(np.uint8), info, info.start)
            out[...] = _converted(found, info.dtype, kind)
        if not (info.is_finite and info.dtype == kind):
            _check_finite(info, out.reshape(-1), kind, 0)

    def _fill(self, target: npt.NDArray[np.uint8], info: TensorInfo, start: int) -> None:
        """Bytes of the file from ``start`` on, into a flat array."""
        read_at(self._streams[info.file], memoryview(target), start, repr(info.name))  # type: ignore[arg-type]


def _check_finite(info: TensorInfo, flat: Values, kind: str, offset: int) -> None:
    """Refuse values that are not finite; ``flat`` has those of a tensor from ``offset`` on, in their final type."""
    first = first_not_finite(flat.view(np.uint8), kind)
    if first is None:
        return
    place = [int(number) for number in np.unravel_index(offset + first, info.shape)]
    value = float(_converted(flat[first : first + 1], kind, "F64")[0])
    raise CheckpointError(
        f"{info.file}: tensor {info.name!r} has values that are not finite in {NAMES[kind]} (the first at {place} is "
        f"{value}). The file is damaged, or its training diverged"
    )
