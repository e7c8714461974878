"""TensorFlow checkpoints written here byte by byte, with any fault a test wants and checksums that are right."""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType

GOLDEN = Path(__file__).parent / "golden" / "tensorflow"
MAGIC = 0xDB4775248B80FB57


def golden_script() -> ModuleType:
    """The script that wrote the golden files; without TensorFlow it still says which values are in them."""
    spec = importlib.util.spec_from_file_location("write_golden", GOLDEN / "write_golden.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def crc32c_by_bits(data: bytes) -> int:
    """CRC-32C straight from its definition: one bit after the other."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


TABLE = [crc32c_by_bits(bytes([byte])) ^ crc32c_by_bits(b"\0") for byte in range(256)]


def crc32c_by_bytes(data: bytes) -> int:
    """The same with the eight bits of a byte taken together."""
    register = 0xFFFFFFFF
    for byte in data:
        register = TABLE[(register ^ byte) & 255] ^ (register >> 8)
    return register ^ 0xFFFFFFFF


def masked_by_bytes(data: bytes) -> int:
    """The form in which it is stored."""
    crc = crc32c_by_bytes(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def number(value: int) -> bytes:
    """A varint."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(key: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer."""
    if isinstance(value, int):
        return number(key << 3) + number(value)
    return number(key << 3 | 2) + number(len(value)) + value


def shape(sizes: Iterable[int]) -> bytes:
    return b"".join(field(2, field(1, size)) for size in sizes)


def entry(
    sizes: Sequence[int] = (2,),
    *,
    dtype: int = 1,
    start: int = 0,
    size: int | None = None,
    shard: int = 0,
    crc: int = 0,
    more: bytes = b"",
) -> bytes:
    """What an index says of one tensor."""
    count = 4
    for length in sizes:
        count *= length
    said = field(1, dtype) + field(2, shape(sizes)) + field(3, shard) + field(4, start)
    return said + field(5, count if size is None else size) + number(6 << 3 | 5) + struct.pack("<I", crc) + more


def header(shards: int = 1, *, endianness: int = 0, needed: int = 0) -> bytes:
    return field(1, shards) + field(2, endianness) + field(3, field(1, 1) + field(2, needed))


def block(entries: Iterable[tuple[bytes, bytes]], *, kind: int = 0, spoil: int = 0) -> bytes:
    """A block of a table without shared beginnings, its trailer included."""
    body = b"".join(number(0) + number(len(key)) + number(len(value)) + key + value for key, value in entries)
    return trailed(body + struct.pack("<II", 0, 1), kind=kind, spoil=spoil)


def trailed(content: bytes, *, kind: int = 0, spoil: int = 0) -> bytes:
    content += bytes([kind])
    return content + struct.pack("<I", masked_by_bytes(content) ^ spoil)


def table(
    blocks: Sequence[bytes], lasts: Sequence[bytes], *, magic: int = MAGIC, handles: Sequence[bytes] = ()
) -> bytes:
    """A whole table: blocks as :func:`block` gives them, the last key of each, and where they are unless told."""
    out, found = b"", []
    for one in blocks:
        found.append(number(len(out)) + number(len(one) - 5))
        out += one
    meta, out = number(len(out)) + number(len(block([])) - 5), out + block([])
    listing = block(zip(lasts, handles or found, strict=True))
    place = number(len(out)) + number(len(listing) - 5)
    return out + listing + (meta + place).ljust(40, b"\0") + struct.pack("<Q", magic)


def write_bundle(folder: Path, entries: Sequence[tuple[bytes, bytes]], data: bytes = bytes(64)) -> Path:
    """An index with one block, and one data file; returns the index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "m.ckpt.index").write_bytes(table([block(entries)], [entries[-1][0]]))
    (folder / "m.ckpt.data-00000-of-00001").write_bytes(data)
    return folder / "m.ckpt.index"
