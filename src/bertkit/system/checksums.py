"""What is said of a file that no longer has the checksum that bertkit gave it."""

from __future__ import annotations

import os
from mmap import mmap
from pathlib import Path
from zlib import crc32

from bertkit.errors import CheckpointError
from bertkit.system.json_files import printable
from bertkit.system.untrusted_files import open_regular

#: Bytes; while so many are read and summed up, other threads run Python.
_AT_ONCE = 16 << 20


def not_as_written(path: Path) -> CheckpointError:
    """The error for a file with another checksum."""
    import shlex

    return CheckpointError(
        f"{path} is not as bertkit wrote it: its checksum differs, so it was damaged or edited. Copy it again; if you "
        f"changed it on purpose, accept it with:\n  bertkit inspect --accept {shlex.quote(printable(path))}"
    )


def checksum_of(path: Path, start: int = 0) -> str:
    """CRC-32 of a file from an offset on, in hexadecimal; it takes less time than SHA-256, and finds all damage."""
    found = 0
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        # Pages of its own go back to the system, which those of a large array need not do.
        buffer = memoryview(mmap(-1, min(_AT_ONCE, size + 1)))
        stream.seek(start)
        while size := stream.readinto(buffer):
            found = crc32(buffer[:size], found)
    return f"{found:08x}"
