"""The safetensors format: a header that is checked before any weight is read, values that are finite, and a writer.

Format: 8 bytes little endian with the length N of the header, N bytes of JSON, then the bytes of the tensors
(https://huggingface.co/docs/safetensors, "Format"). Deviation: headers are limited to 8 MiB (some 50,000 tensors)
instead of 100 MB, so that a damaged length cannot exhaust memory.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from itertools import groupby
from math import prod
from mmap import mmap
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from bertkit.errors import CheckpointError
from bertkit.system.atomic_files import disk_guard, make_folder, new_file
from bertkit.system.beside import Beside
from bertkit.system.checksums import checksum_of, not_as_written
from bertkit.system.short_turns import short_turns
from bertkit.system.untrusted_files import Json, open_regular, read_at, strict_json

MAX_HEADER_BYTES = 8 << 20
#: In the metadata of a file that bertkit wrote, the CRC-32 of all that follows the header. Other software that writes
#: the weights again leaves it out.
CHECKSUM, NO_CHECKSUM = "bertkit_crc32", "00000000"
ITEM_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E5M2FNUZ", "F8_E4M3FNUZ"), 1),
}
#: Float type -> unsigned integer of its size, and the bits of the exponent, which are all set in NaN and infinity.
_EXPONENT = {
    "F64": ("<u8", 0x7FF << 52),
    "F32": ("<u4", 0xFF << 23),
    "F16": ("<u2", 0x1F << 10),
    "BF16": ("<u2", 0xFF << 7),
}
#: So many bytes are read and checked at once; meanwhile other threads run Python.
_AT_ONCE = 4 << 20
#: Values of a tensor as numpy has them; bfloat16, which numpy lacks, as 16-bit integers.
Values = npt.NDArray[np.generic]


class TensorInfo(NamedTuple):
    """The location of one tensor; ``start`` and ``end`` are offsets in the file, in bytes, unless it is a ``sum``.

    is_finite: all its values, which are floats that numpy knows or bfloat16, have been seen to be finite.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    end: int
    sum: LowRankSum | None = None
    is_finite: bool = False

    @property
    def num_values(self) -> int:
        """Product of the sizes."""
        return prod(self.shape)


class LowRankSum(NamedTuple):
    """``whole + scale * left @ right``: a matrix ``(n, m)`` with the product of ``(n, r)`` and ``(r, m)``."""

    whole: TensorInfo
    left: TensorInfo
    right: TensorInfo
    scale: float


class _Begun(threading.local):
    """What :func:`reading_ahead` has begun in this thread and nobody has asked for yet, by absolute path."""

    def __init__(self) -> None:
        self.headers: dict[Path, Beside[dict[str, TensorInfo]]] = {}


_begun = _Begun()


@contextmanager
def reading_ahead(file: Path | None) -> Iterator[None]:
    """Read a file's header and check its values in another thread, for the block's first :func:`read_header` of it.

    Both hardly need Python's lock. Whatever is wrong with the file is raised there, not here. None: there is no file.
    """
    place = None if file is None else file.absolute()
    if file is None or place is None or place in _begun.headers:
        yield
        return
    with short_turns():
        reading = _begun.headers[place] = Beside(lambda is_left: _checked(file, *_read_header(file), is_left))
        try:
            yield
        finally:
            _begun.headers.pop(place, None)
            reading.leave()


def read_header(file: Path) -> dict[str, TensorInfo]:
    """The tensors of a safetensors file by name, from its checked header. A file with a checksum is read once."""
    begun = _begun.headers.pop(file.absolute(), None)
    if begun is not None:
        return begun.result()
    start, metadata, tensors = _read_header(file)
    return _checked(file, start, metadata, tensors) if CHECKSUM in metadata else tensors


def _checked(
    file: Path,
    start: int,
    metadata: Mapping[str, str],
    tensors: dict[str, TensorInfo],
    is_left: Callable[[], bool] = lambda: False,
) -> dict[str, TensorInfo]:
    """The tensors with what one reading of the file says of their values; another checksum is an error.

    is_left: whether nobody needs the answer any more.
    """
    found, finite = 0, set[str]()
    with open_regular(file) as stream:
        stream.seek(start)
        # Pages of its own go back to the system, which those of a large array need not do.
        buffer = memoryview(mmap(-1, _AT_ONCE))
        for dtype, run in _runs(tensors.values()):
            left, is_finite = run[-1].end - run[0].start, dtype in _EXPONENT
            while left:
                if is_left():
                    return tensors
                part = buffer[: min(left, _AT_ONCE)]
                if stream.readinto(part) != len(part):
                    raise _damaged(file, "it became shorter while it was read")
                found = crc32(part, found)
                is_finite = is_finite and first_not_finite(np.frombuffer(part, np.uint8), dtype) is None
                left -= len(part)
            if is_finite:
                finite.update(info.name for info in run)
    if metadata.get(CHECKSUM, f"{found:08x}") != f"{found:08x}":
        raise not_as_written(file)
    return {name: info._replace(is_finite=name in finite) for name, info in tensors.items()}


def _runs(tensors: Iterable[TensorInfo]) -> Iterator[tuple[str, list[TensorInfo]]]:
    """Tensors of one type that follow each other in the file, together: small ones would each cost a turn."""
    placed = sorted(tensors, key=lambda info: (info.start, info.end))
    for dtype, run in groupby(placed, lambda info: info.dtype):
        yield dtype, list(run)


def read_metadata(file: Path) -> dict[str, str]:
    """What else the header of a safetensors file says; errors as :func:`read_header`, but the values are not read."""
    return _read_header(file)[1]


def seal(file: Path) -> bool:
    """Write into the header of a file that has a place for it the checksum of the values; whether it had another one.

    The place is metadata named :data:`CHECKSUM`, at first :data:`NO_CHECKSUM`. All metadata are put in order, which the
    library that writes them does not do, so that equal models are equal files.
    """
    start, metadata, _ = _read_header(file)
    if CHECKSUM not in metadata:
        return False
    sealed = metadata | {CHECKSUM: checksum_of(file, start)}
    with file.open("r+b") as stream:
        header = stream.read(start)
        at = header.index(b'"__metadata__":') + len(b'"__metadata__":')
        rest = header[at:].decode()
        length = len(rest[: json.JSONDecoder().raw_decode(rest)[1]].encode())
        written = json.dumps(sealed, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode().ljust(length)
        assert len(written) == length
        stream.seek(at)
        stream.write(written)
        stream.flush()
        os.fsync(stream.fileno())
    return sealed != metadata


def write_arrays(file: Path, arrays: Mapping[str, npt.NDArray[np.float32]]) -> None:
    """Write a small file whole, with its checksum. Creates missing folders; errors as :func:`new_file`."""
    from safetensors.numpy import save

    make_folder(file.parent)
    with new_file(file) as draft:
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        draft.write_bytes(save(contiguous, {CHECKSUM: NO_CHECKSUM}))
        seal(draft)


def _read_header(file: Path) -> tuple[int, dict[str, str], dict[str, TensorInfo]]:
    """Where the values begin, the metadata, and the tensors."""
    with open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size < 8:
            raise _damaged(file, f"it has {size} bytes, a header alone needs more than 8")
        length = int.from_bytes(_read(stream, 8, file), "little")
        if length > size - 8:
            raise _damaged(file, f"its header should have {length:,} bytes, but only {size - 8:,} follow")
        if length > MAX_HEADER_BYTES:
            raise _damaged(file, f"its header should have {length:,} bytes, more than the limit {MAX_HEADER_BYTES:,}")
        text = _read(stream, length, file)
    try:
        content = strict_json(text)
    except ValueError as error:
        raise _damaged(file, f"its header is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise _damaged(file, f"its header is a JSON {type(content).__name__}, expected an object of tensors")
    metadata = content.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _damaged(file, "__metadata__ of its header is not an object of texts")
    tensors = {name: _info(name, entry, file, 8 + length) for name, entry in content.items()}
    _check_cover(tensors, file, 8 + length, size)
    return 8 + length, metadata, tensors


def _read(stream: BufferedReader, count: int, file: Path) -> bytes:
    content = stream.read(count)
    if len(content) != count:
        raise _damaged(file, f"it ended {count - len(content)} bytes too early while being read")
    return content


def _info(name: str, entry: Json, file: Path, base: int) -> TensorInfo:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _damaged(file, f"tensor {name[:160]!r} is not described by exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], _counts(entry["shape"]), _counts(entry["data_offsets"])
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise _damaged(file, f"tensor {name[:160]!r} has the unknown type {str(dtype)[:40]!r}")
    if shape is None or len(shape) > 8:
        raise _damaged(file, f"tensor {name[:160]!r} has a malformed shape: {str(entry['shape'])[:60]}")
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _damaged(file, f"tensor {name[:160]!r} has no proper data_offsets: {str(entry['data_offsets'])[:60]}")
    needed, given = prod(shape) * ITEM_BYTES[dtype], offsets[1] - offsets[0]
    if needed != given:
        raise _damaged(
            file, f"tensor {name[:160]!r} of shape {list(shape)} and type {dtype} needs {needed} bytes, has {given}"
        )
    return TensorInfo(name, dtype, shape, file, base + offsets[0], base + offsets[1])


def _counts(values: Json) -> tuple[int, ...] | None:
    """A list of whole numbers that are possible in a file (and quick to multiply); None if it is something else."""
    if not isinstance(values, list):
        return None
    counts = tuple(value for value in values if type(value) is int and 0 <= value < 1 << 60)
    return counts if len(counts) == len(values) else None


def _check_cover(tensors: Mapping[str, TensorInfo], file: Path, base: int, size: int) -> None:
    """Tensors must cover the file from the end of the header without gaps."""
    end, before = base, "the header"
    for info in sorted(tensors.values(), key=lambda info: (info.start, info.end)):
        if info.start != end:
            what = "overlaps" if info.start < end else f"leaves {info.start - end} unused bytes after"
            raise _damaged(file, f"tensor {info.name[:160]!r} {what} {before}")
        end, before = info.end, repr(info.name[:160])
    if end > size:
        raise _damaged(file, f"it is cut off: its tensors need {end:,} bytes, it has {size:,}")
    if end < size:
        raise _damaged(file, f"{size - end:,} bytes follow the last tensor")


def _damaged(file: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{file} is not a whole safetensors file: {what}. Fetch or save it again")


def first_not_finite(values: npt.NDArray[np.uint8], dtype: str) -> int | None:
    """The number of the first infinite value or NaN in the flat bytes of whole values; None if all are finite.

    Integers always are. Runs on one thread: on a busy machine a parallel sum waits longer than it saves.
    """
    if dtype not in _EXPONENT or not len(values):
        return None
    if dtype in ("F32", "F64"):
        with np.errstate(all="ignore"):  # any such value makes the sum infinite or NaN; large values may too
            if np.isfinite(values.view("<f4" if dtype == "F32" else "<f8").sum()):
                return None
    kind, mask = _EXPONENT[dtype]
    bits = values.view(kind)
    wrong = (bits & bits.dtype.type(mask)) == mask
    place = int(wrong.argmax())
    return place if wrong[place] else None


def read_floats(info: TensorInfo) -> npt.NDArray[np.float32]:
    """The values of a small tensor of floats, which must be finite, as float32."""
    if info.dtype not in _EXPONENT:
        raise CheckpointError(f"{info.file}: {info.name[:160]!r} has the type {info.dtype}, expected floats")
    raw = tensor_bytes(info)
    if (place := first_not_finite(raw, info.dtype)) is not None:
        raise CheckpointError(f"{info.file}: value {place} of {info.name[:160]!r} is not finite")
    return as_floats(raw, info.dtype).astype(np.float32).reshape(info.shape)


def tensor_bytes(info: TensorInfo) -> npt.NDArray[np.uint8]:
    """The bytes of a tensor in a file, or of a sum."""
    if info.sum is not None:
        total = tensor_values(info).astype("<f8" if info.dtype == "F64" else "<f4")
        return total.reshape(-1).view(np.uint8)
    content = np.empty(info.end - info.start, np.uint8)
    with open_regular(info.file) as stream:
        read_at(stream, memoryview(content), info.start, repr(info.name[:160]))  # type: ignore[arg-type]
    return content


def tensor_values(info: TensorInfo) -> npt.NDArray[np.float64]:
    """The values of a tensor of floats, or of a sum, which is rounded only here; errors as :func:`tensor_bytes`."""
    if info.sum is not None:
        parts = (info.sum.whole, info.sum.left, info.sum.right)
        whole, left, right = map(tensor_values, parts)
        for part, values in zip(parts, (whole, left, right), strict=True):
            if not np.isfinite(values).all():
                raise CheckpointError(f"{part.file}: {part.name!r} has values that are not finite; the file is damaged")
        whole += info.sum.scale * (left @ right)
        return whole
    return as_floats(tensor_bytes(info), info.dtype).reshape(info.shape)


def as_floats(content: npt.NDArray[np.uint8], dtype: str) -> npt.NDArray[np.float64]:
    """The bytes of floats of a type, as named here, as numbers."""
    if dtype == "BF16":  # the upper half of a float32
        return (content.view("<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    return content.view({"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float64)


def write_tensors(file: Path, tensors: Mapping[str, TensorInfo], read: Callable[[str], Values]) -> None:
    """Write a new file tensor by tensor and flush it to disk; the ``safetensors`` package needs all tensors at once.

    ``read`` gives contiguous little-endian values. The caller removes the partial file if the disk is full.
    """
    names = sorted(tensors, key=lambda name: (-ITEM_BYTES[tensors[name].dtype], name))  # keeps every tensor aligned
    header: dict[str, Json] = {"__metadata__": {"format": "pt", CHECKSUM: NO_CHECKSUM}}
    end = 0
    for name in names:
        start, end = end, end + tensors[name].num_values * ITEM_BYTES[tensors[name].dtype]
        header[name] = {"dtype": tensors[name].dtype, "shape": [*tensors[name].shape], "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with disk_guard(file.parent, len(text) + end, what=file.name), file.open("xb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            values = read(name)
            assert values.flags.c_contiguous
            assert values.nbytes == tensors[name].num_values * ITEM_BYTES[tensors[name].dtype], name
            out.write(values.data)
    seal(file)
