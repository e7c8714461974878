"""What is said of a file that no longer has the checksum that bertkit gave it."""

from __future__ import annotations

import shlex
from pathlib import Path
from zlib import crc32

from bertkit.errors import CheckpointError
from bertkit.system.json_files import printable
from bertkit.system.untrusted_files import open_regular

_AT_ONCE = 1 << 20


def not_as_written(path: Path) -> CheckpointError:
    """The error for a file with another checksum."""
    return CheckpointError(
        f"{path} is not as bertkit wrote it: its checksum differs, so it was damaged or edited. Copy it again; if you "
        f"changed it on purpose, accept it with:\n  bertkit inspect --accept {shlex.quote(printable(path))}"
    )


def checksum_of(path: Path, start: int = 0) -> str:
    """CRC-32 of a file from an offset on, in hexadecimal; it takes less time than SHA-256, and finds all damage."""
    found, buffer = 0, memoryview(bytearray(_AT_ONCE))
    with open_regular(path) as stream:
        stream.seek(start)
        while size := stream.readinto(buffer):
            found = crc32(buffer[:size], found)
    return f"{found:08x}"
