"""The header of a safetensors file: names, types and locations of its tensors, checked before any weight is read.

Format: 8 bytes little endian with the length N of the header, N bytes of JSON, then the bytes of the tensors
(https://huggingface.co/docs/safetensors, "Format"). Deviation: headers are limited to 8 MiB (some 50,000 tensors)
instead of 100 MB, so that a damaged length cannot exhaust memory. Imports no torch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from io import BufferedReader
from math import prod
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.system.untrusted_files import open_regular, strict_json

MAX_HEADER_BYTES = 8 << 20
#: Size of one value by type.
ITEM_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E5M2FNUZ", "F8_E4M3FNUZ"), 1),
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """The location of one tensor.

    start, end: offsets in the file, in bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    end: int

    @property
    def num_values(self) -> int:
        """Product of the sizes."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Header:
    """The header of one file.

    metadata: free text of the writer, often ``{"format": "pt"}``.
    """

    file: Path
    tensors: dict[str, TensorInfo]
    metadata: dict[str, str]


def read_header(file: Path) -> Header:
    """Read and check the header of a safetensors file; the cost does not grow with the weights.

    Raises:
        CheckpointError: not a regular file, unreadable, truncated or with extra bytes; a header that is not valid JSON
            of this format, has a tensor twice, or tensors that overlap, leave gaps or have the wrong number of bytes.
            Names file and tensor.
    """
    with open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size < 8:
            raise _damaged(file, f"it has {size} bytes, a header alone needs more than 8")
        length = int.from_bytes(_read(stream, 8, file), "little")
        if length > size - 8:
            raise _damaged(file, f"its header should have {length:,} bytes, but only {size - 8:,} follow")
        if length > MAX_HEADER_BYTES:
            raise _damaged(file, f"its header should have {length:,} bytes, more than the limit {MAX_HEADER_BYTES:,}")
        content = _parse(_read(stream, length, file), file)
    metadata = content.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _damaged(file, "__metadata__ of its header is not an object of texts")
    tensors = {name: _info(name, entry, file, 8 + length) for name, entry in content.items()}
    _check_cover(tensors, file, 8 + length, size)
    return Header(file, tensors, metadata)


def _read(stream: BufferedReader, count: int, file: Path) -> bytes:
    content = stream.read(count)
    if len(content) != count:
        raise _damaged(file, f"it ended {count - len(content)} bytes too early while being read")
    return content


def _parse(text: bytes, file: Path) -> dict[str, Any]:
    try:
        content = strict_json(text)
    except ValueError as error:
        raise _damaged(file, f"its header is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise _damaged(file, f"its header is a JSON {type(content).__name__}, expected an object of tensors")
    return content


def _info(name: str, entry: Any, file: Path, base: int) -> TensorInfo:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _damaged(file, f"tensor {name[:160]!r} is not described by exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise _damaged(file, f"tensor {name[:160]!r} has the unknown type {str(dtype)[:40]!r}")
    if not _counts(shape) or len(shape) > 8:
        raise _damaged(file, f"tensor {name[:160]!r} has no proper shape: {str(shape)[:60]}")
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _damaged(file, f"tensor {name[:160]!r} has no proper data_offsets: {str(offsets)[:60]}")
    needed, given = prod(shape) * ITEM_BYTES[dtype], offsets[1] - offsets[0]
    if needed != given:
        raise _damaged(
            file, f"tensor {name[:160]!r} of shape {shape} and type {dtype} needs {needed} bytes, has {given}"
        )
    return TensorInfo(name, dtype, tuple(shape), file, base + offsets[0], base + offsets[1])


def _counts(values: Any) -> bool:
    """Whether it is a list of whole numbers that are possible in a file (and quick to multiply)."""
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 60 for value in values)


def _check_cover(tensors: dict[str, TensorInfo], file: Path, base: int, size: int) -> None:
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
