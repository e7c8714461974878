"""TensorFlow checkpoints (``.index`` and ``.data-00000-of-00001``), read without TensorFlow.

The index has type, shape, location and CRC-32C of each tensor; the data files contain only values. Reading the index
allocates nothing that grows with the weights. Layout: ``tensorflow/core/protobuf/tensor_bundle.proto``.

A partitioned variable is one tensor stored as several along one axis: its entry has a shape, a list of slices and no
bytes. Each slice has an entry of its own, whose key is made of the name and the slice in TensorFlow's order-preserving
code, which is not text (``core/util/saved_tensor_slice_util.cc``, ``core/lib/strings/ordered_code.cc``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import BufferedReader
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from bertkit.checkpoints.safetensors_format import ITEM_BYTES, TensorInfo
from bertkit.checkpoints.tensorflow.crc import crc32c, masked
from bertkit.checkpoints.tensorflow.index_table import read_table
from bertkit.errors import CheckpointError
from bertkit.system.protobuf import Value, bytes_of, fields, number_of, varint
from bertkit.system.untrusted_files import open_regular, read_at

MAX_DATA_FILES = 1_000
#: Types by their numbers in TensorFlow, as named by safetensors.
DTYPES = {
    1: "F32", 2: "F64", 3: "I32", 4: "U8", 5: "I16", 6: "I8", 9: "I64", 10: "BOOL", 14: "BF16", 17: "U16", 19: "F16",
    22: "U32", 23: "U64",
}  # fmt: skip
_STRING = 7
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_MAX_GRAPH_BYTES = 64 << 20
#: What every key of a slice begins with, and no name does.
_SLICE_PREFIX = b"\0"
#: First index and number of indices of each axis; -1 (no number is stored) means all.
Extents = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of an index; no values are read yet.

    tensors: by name, without those of text. A tensor in slices has the location of its first slice.
    slices: by name, for tensors in slices: their axis, and the slices in order.
    checksums: masked CRC-32C of the bytes of each tensor or slice.
    graph: location of the object graph that TensorFlow 2 saves.
    """

    index: Path
    tensors: Mapping[str, TensorInfo]
    slices: Mapping[str, tuple[int, Sequence[TensorInfo]]]
    checksums: Mapping[str, int]
    graph: TensorInfo | None


@dataclass(frozen=True, slots=True)
class _Entry:
    dtype: int
    shape: tuple[int, ...]
    shard: int
    start: int
    size: int
    checksum: int
    slices: tuple[Extents, ...]


def open_bundle(index: Path) -> Bundle:
    """Read and check the ``.index`` of a checkpoint, and that its data files exist and are long enough."""
    entries = read_table(index)
    try:
        if not entries or entries[0][0]:
            raise ValueError("it does not begin with the header of a checkpoint")
        files = _data_files(index, entries[0][1])
        parts = {key: value for key, value in entries[1:] if key.startswith(_SLICE_PREFIX)}
        names = [(key.decode("utf-8"), value) for key, value in entries[1:] if key not in parts]
        found = {name: _entry(name, value) for name, value in names}
        slices: dict[str, tuple[int, Sequence[TensorInfo]]] = {}
        infos: dict[str, TensorInfo] = {}
        placed: list[TensorInfo] = []
        for name, entry in [*found.items()]:
            if not entry.slices:
                infos[name] = _info(name, entry, files)
                placed.append(infos[name])
                continue
            axis, shapes = _part_shapes(entry.shape, entry.slices)
            inside = []
            for number, (extents, shape) in enumerate(zip(entry.slices, shapes, strict=True), 1):
                part = f"{name} (slice {number} of {len(shapes)})"
                found[part] = _entry(part, parts.pop(slice_key(name, extents), memoryview(b"")))
                if (found[part].shape, found[part].dtype) != (shape, entry.dtype):
                    raise ValueError(
                        f"{part} is missing, or does not have the shape {list(shape)} that its tensor declares"
                    )
                inside.append(_info(part, found[part], files))
            slices[name], infos[name] = (axis, inside), inside[0]._replace(name=name, shape=entry.shape)
            placed += inside
        if parts:
            raise ValueError(f"{next(iter(parts))!r:.80} is a slice of no tensor")
        # Tensors must not share bytes; gaps between them, which some writers leave for alignment, are fine.
        for before, info in pairwise(sorted(placed, key=lambda info: (str(info.file), info.start, info.end))):
            if before.file == info.file and info.start < before.end:
                raise ValueError(f"tensor {info.name!r} overlaps {before.name!r}")
    except ValueError as error:
        raise CheckpointError(f"{index} is not a whole TensorFlow checkpoint: {error}") from None
    tensors = {name: info for name, info in infos.items() if found[name].dtype != _STRING}
    graph = infos.get(_GRAPH) if _GRAPH not in tensors else None
    return Bundle(index, tensors, slices, {name: entry.checksum for name, entry in found.items()}, graph)


class BundleReader:
    """The open data files of a bundle; a context manager. :meth:`read` is safe to call from several threads."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._stack = ExitStack()
        self._streams: dict[Path, BufferedReader] = {}

    def __enter__(self) -> Self:
        files = {info.file for info in self._bundle.tensors.values()}
        files |= {part.file for _, inside in self._bundle.slices.values() for part in inside}
        for file in sorted(files):
            self._streams[file] = self._stack.enter_context(open_regular(file))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def read(self, name: str, out: npt.NDArray[np.uint8]) -> None:
        """Fill ``out``, flat and of the right size, with a tensor's bytes, little endian, and verify their checksum."""
        info = self._bundle.tensors[name]
        if name not in self._bundle.slices:
            self._read(info, out)
            return
        axis, inside = self._bundle.slices[name]
        whole, start = out.reshape(*info.shape, ITEM_BYTES[info.dtype]), 0
        for part in inside:
            values = np.empty(part.end - part.start, np.uint8)
            self._read(part, values)
            place = (*[slice(None)] * axis, slice(start, start + part.shape[axis]))
            whole[place] = values.reshape(*part.shape, ITEM_BYTES[info.dtype])
            start += part.shape[axis]

    def _read(self, info: TensorInfo, out: npt.NDArray[np.uint8]) -> None:
        _fill(self._streams[info.file], info, out)
        if masked(crc32c(out)) != self._bundle.checksums[info.name]:
            raise CheckpointError(
                f"{info.file}: the checksum of tensor {info.name!r} is wrong: the file is damaged. Fetch or copy it "
                "again"
            )


def read_graph(bundle: Bundle) -> bytes | None:
    """The object graph that TensorFlow 2 saves, a protocol buffer; None if there is none.

    A tensor of text is stored as the lengths, their checksum, and the texts.
    """
    info = bundle.graph
    if info is None:
        return None
    raw = np.empty(info.end - info.start, np.uint8)
    with open_regular(info.file) as stream:
        _fill(stream, info, raw)
    try:
        length, at = varint(memoryview(raw.tobytes()), 0)
        width = 4 if length < 1 << 32 else 8
        head = length.to_bytes(width, "little")
        if length != len(raw) - at - 4 or int.from_bytes(raw[at : at + 4].tobytes(), "little") != masked(crc32c(head)):
            raise ValueError("its length is wrong")
        if masked(crc32c(head + raw[at:].tobytes())) != bundle.checksums[info.name]:
            raise ValueError("its checksum is wrong")
    except ValueError as error:
        raise CheckpointError(f"{info.file}: the description of the objects is damaged: {error}") from None
    return raw[at + 4 :].tobytes()


def _fill(stream: BufferedReader, info: TensorInfo, out: npt.NDArray[np.uint8]) -> None:
    read_at(stream, memoryview(out), info.start, repr(info.name))  # type: ignore[arg-type]


def _data_files(index: Path, header: memoryview) -> list[Path]:
    """Check the header; the data files, whose names follow from that of the index."""
    shards, endianness, needed = 1, 0, 0
    for number, value in fields(header):
        if number == 1:
            shards = number_of(value)
        elif number == 2:
            endianness = number_of(value)
        elif number == 3:
            needed = max((number_of(part) for key, part in fields(bytes_of(value)) if key == 2), default=0)
    if endianness:
        raise ValueError("its values are big-endian; save it again on a little-endian machine")
    if needed > 1:
        raise ValueError(f"it needs version {needed} of the format, only 1 is supported")
    if not 1 <= shards <= MAX_DATA_FILES:
        raise ValueError(f"it should have {shards:,} data files, expected 1 to {MAX_DATA_FILES:,}")
    stem = index.name.removesuffix(".index")
    files = [index.with_name(f"{stem}.data-{number:05d}-of-{shards:05d}") for number in range(shards)]
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file.name} is not beside it: the download or copy is incomplete")
    return files


def _entry(name: str, message: memoryview) -> _Entry:
    shape: tuple[int, ...] = ()
    numbers: dict[int, int] = {}
    slices: list[Extents] = []
    try:
        for number, value in fields(message):
            if number == 2:
                shape = _shape(bytes_of(value))
            elif number == 6:
                numbers[number] = int.from_bytes(bytes_of(value, 4), "little")
            elif number == 7:
                extents = [fields(bytes_of(extent)) for key, extent in fields(bytes_of(value)) if key == 1]
                slices.append(tuple(map(_extent, extents)))
            else:
                numbers[number] = number_of(value)
    except ValueError as error:
        raise ValueError(f"tensor {name!r} has a malformed entry: {error}") from None
    dtype, shard, start, size, checksum = (numbers.get(number, 0) for number in (1, 3, 4, 5, 6))
    return _Entry(dtype, shape, shard, start, size, checksum, tuple(slices))


def _shape(message: memoryview) -> tuple[int, ...]:
    sizes = []
    for number, value in fields(message):
        if number == 3 and number_of(value):
            raise ValueError("it has no shape")
        if number == 2:
            sizes.append(max((number_of(part) for key, part in fields(bytes_of(value)) if key == 1), default=0))
    if len(sizes) > 8 or any(size >= 1 << 60 for size in sizes):
        raise ValueError(f"it has a malformed shape: {str(sizes)[:60]}")
    return tuple(sizes)


def _extent(message: Iterable[tuple[int, Value]]) -> tuple[int, int]:
    found = {number: number_of(value) for number, value in message}
    return found.get(1, 0), found.get(2, -1)


def _info(name: str, entry: _Entry, files: list[Path]) -> TensorInfo:
    """The location of a tensor, if it is of weights, has the right number of bytes, and lies within its file."""
    if entry.shard >= len(files):
        raise ValueError(f"tensor {name!r} lies in data file {entry.shard}, but there are only {len(files)}")
    if entry.dtype == _STRING:
        if (entry.shape and name == _GRAPH) or entry.size > _MAX_GRAPH_BYTES:
            raise ValueError(f"the text {name!r} has {entry.size:,} bytes in the shape {list(entry.shape)}")
    elif entry.dtype not in DTYPES:
        raise ValueError(f"tensor {name!r} has the type number {entry.dtype}, which weights do not have")
    else:
        needed = prod(entry.shape) * ITEM_BYTES[DTYPES[entry.dtype]]
        if needed != entry.size:
            described = f"of shape {list(entry.shape)} and type {DTYPES[entry.dtype]}"
            raise ValueError(f"tensor {name!r} {described} needs {needed} bytes, has {entry.size}")
    file, end = files[entry.shard], entry.start + entry.size
    if end > file.stat().st_size:
        raise ValueError(
            f"tensor {name!r} ends at byte {end:,} of {file.name}, which has {file.stat().st_size:,} bytes"
        )
    return TensorInfo(name, DTYPES.get(entry.dtype, "text"), entry.shape, file, entry.start, end)


def slice_key(name: str, extents: Extents) -> bytes:
    """The key of a slice's own entry."""
    text = name.encode().replace(b"\0", b"\0\xff") + b"\0\1"
    numbers = b"".join(_signed(number) for extent in extents for number in extent)
    return _SLICE_PREFIX + text + bytes([1, len(extents)]) + numbers


def _signed(number: int) -> bytes:
    """A number in as many bytes as there are bits set at its beginning: 7 bits of it in each."""
    size = (number if number >= 0 else ~number).bit_length() // 7 + 1
    header = ((1 << size) - 1) << 7 * size
    return (number % (1 << 8 * size) ^ header).to_bytes(size, "big")


def _part_shapes(shape: tuple[int, ...], slices: Sequence[Extents]) -> tuple[int, list[tuple[int, ...]]]:
    """The axis along which the slices of a tensor lie side by side, in their order, and their shapes."""
    parts = [
        [(start, size if length == -1 else length) for (start, length), size in zip(extents, shape, strict=False)]
        for extents in slices
    ]
    axes = {at for part in parts for at, extent in enumerate(part) if extent != (0, shape[at])} or {0}
    if len(axes) != 1 or not shape or any(len(extents) != len(shape) for extents in slices):
        raise ValueError(f"{len(slices)} slices of a tensor of shape {list(shape)} do not lie along one axis")
    (axis,) = axes
    end = 0
    for part in parts:
        start, length = part[axis]
        if start != end or length < 1:
            raise ValueError(f"its slices leave a gap or overlap at index {end} of axis {axis}")
        end += length
    if end != shape[axis]:
        raise ValueError(f"its slices have {end} of the {shape[axis]} indices of axis {axis}")
    return axis, [(*shape[:axis], part[axis][1], *shape[axis + 1 :]) for part in parts]
