"""The ``.index`` of a TensorFlow checkpoint: a sorted table of strings in the block format of LevelDB.

A block has entries (number of bytes shared with the previous key, further bytes of the key, bytes of the value, all as
varints; then key and value), the offsets of its restarts, one byte for the compression and a masked CRC-32C. The last
48 bytes locate the block that lists the blocks (https://github.com/google/leveldb/blob/main/doc/table_format.md).
TensorFlow never compresses an index; a compressed one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bertkit.checkpoints.tensorflow.crc import crc32c, masked
from bertkit.errors import CheckpointError
from bertkit.system.protobuf import varint
from bertkit.system.untrusted_files import open_regular

MAX_INDEX_BYTES = 8 << 20
MAX_ENTRIES = 50_000
MAX_KEY_BYTES = 1 << 10

_FOOTER_BYTES = 48
_TRAILER_BYTES = 5
_MAGIC = 0xDB4775248B80FB57

Entry = tuple[bytes, memoryview]


def read_table(file: Path) -> list[Entry]:
    """All entries of a table, in order."""
    with open_regular(file) as stream:
        content = stream.read(MAX_INDEX_BYTES + 1)
    if len(content) > MAX_INDEX_BYTES:
        raise _damaged(file, f"it has more than {MAX_INDEX_BYTES:,} bytes, but real ones have some ten thousand")
    try:
        return list(_entries(memoryview(content)))
    except ValueError as error:
        raise _damaged(file, str(error)) from None


def _entries(content: memoryview) -> Iterator[Entry]:
    if len(content) < _FOOTER_BYTES:
        raise ValueError(f"it has {len(content)} bytes, the end alone needs {_FOOTER_BYTES}")
    footer = content[-_FOOTER_BYTES:]
    if int.from_bytes(footer[-8:], "little") != _MAGIC:
        raise ValueError("its end is not that of a checkpoint index")
    body, at = content[:-_FOOTER_BYTES], 0
    for _ in range(2):  # an unused block, then the list of blocks
        start, at = varint(footer, at)
        size, at = varint(footer, at)
    end, before, count = 0, None, 0
    for last, handle in _block(body, start, size):
        start, at = varint(handle, 0)
        size, at = varint(handle, at)
        if start < end:
            raise ValueError("its blocks overlap")
        end, counted = start + size + _TRAILER_BYTES, count
        for key, value in _block(body, start, size):
            if before is not None and key <= before:
                raise ValueError(f"its names are not in order, or {_shown(key)} is there twice")
            count += 1
            if count > MAX_ENTRIES:
                raise ValueError(f"it has more than {MAX_ENTRIES:,} entries")
            before = key
            yield key, value
        if count == counted:  # no writer makes such a block, but a file has room for half a million
            raise ValueError(f"the block at {start:,} has no names")
        if before is not None and before > last:
            raise ValueError("a block has names that belong in another one")


def _block(body: memoryview, start: int, size: int) -> Iterator[Entry]:
    """The entries of one block with a valid checksum."""
    if start + size + _TRAILER_BYTES > len(body):
        raise ValueError(f"a block should be at {start:,} to {start + size:,}, it has {len(body):,} bytes of blocks")
    kind = body[start + size]
    stored = int.from_bytes(body[start + size + 1 : start + size + _TRAILER_BYTES], "little")
    if masked(crc32c(body[start : start + size + 1])) != stored:
        raise ValueError(f"the checksum of the block at {start:,} is wrong")
    if kind:
        raise ValueError(f"it is compressed (kind {kind}), which TensorFlow never does to an index")
    block = body[start : start + size]
    restarts = int.from_bytes(block[-4:], "little") if size >= 4 else 0
    limit = size - 4 - 4 * restarts
    if limit < 0 or not restarts:
        raise ValueError(f"the block at {start:,} has a malformed list of restarts")
    key, at = b"", 0
    while at < limit:
        shared, at = varint(block, at)
        fresh, at = varint(block, at)
        length, at = varint(block, at)
        if shared > len(key) or fresh + length > limit - at:
            raise ValueError(f"an entry after {_shown(key)} reaches out of its block")
        if shared + fresh > MAX_KEY_BYTES:
            raise ValueError(f"a name has {shared + fresh:,} bytes, more than the limit {MAX_KEY_BYTES:,}")
        key = key[:shared] + bytes(block[at : at + fresh])
        yield key, block[at + fresh : at + fresh + length]
        at += fresh + length


def _shown(key: bytes) -> str:
    return repr(key.decode("utf-8", "replace")[:80])


def _damaged(file: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{file} is not a whole checkpoint index of TensorFlow: {what}. Fetch or copy it again")
