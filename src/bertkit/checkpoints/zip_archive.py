"""Checkpoints in a ``.zip``, as the original BERT was published: only regular files of bounded size.

The table of contents is checked first; then each file of a checkpoint is written into one flat folder, with no more
bytes than it states.
"""

from __future__ import annotations

import fnmatch
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable
from io import BufferedReader
from pathlib import Path

from bertkit.errors import CheckpointError
from bertkit.system.atomic_files import disk_guard
from bertkit.system.untrusted_files import open_regular

#: Files of a checkpoint; others are not extracted.
WANTED = (
    "*.index", "*.data-*-of-*", "checkpoint", "saved_model.pb", "*.safetensors", "*.safetensors.index.json",
    "pytorch_model*.bin", "pytorch_model.bin.index.json", "*config.json", "vocab*.txt", "*.vocab", "*.model",
    "vocab.json", "merges.txt", "tokenizer.json", "special_tokens_map.json", "added_tokens.json",
)  # fmt: skip
MAX_MEMBERS = 10_000
MAX_TOTAL_BYTES = 64 << 30
#: Weights hardly compress; an archive that grows more than this beyond :data:`_FREE_BYTES` is a zip bomb.
MAX_GROWTH = 20
_FREE_BYTES = 64 << 20
_BLOCK = 1 << 20
_END, _END_64, _LOCATOR_64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
#: End of the table of contents in ZIP64, and the locator behind it.
_BYTES_64 = 56 + 20
_MAX_LIST_BYTES = 4 << 20


def is_archive(path: Path) -> bool:
    """Whether a path is an existing file named ``.zip``."""
    return path.suffix.lower() == ".zip" and path.is_file()


def unpack(file: Path, folder: Path) -> list[Path]:
    """Extract the checkpoint in an archive into an empty folder, without sub-folders; returns the files by name."""
    with open_regular(file) as stream:
        _check_list(stream, file)
        try:
            with zipfile.ZipFile(stream) as archive:
                members = _checked(archive.infolist(), file)
                with disk_guard(folder, sum(member.file_size for member in members), what=f"the content of {file}"):
                    return [_write(archive, member, folder, file) for member in members]
        except CheckpointError:
            raise
        except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, ValueError) as error:
            raise _damaged(file, f"{type(error).__name__}: {str(error)[:200]}") from None


def _check_list(stream: BufferedReader, file: Path) -> None:
    """Refuse a table of contents that would take much memory, before it is read."""
    size = os.fstat(stream.fileno()).st_size
    stream.seek(max(0, size - (1 << 16) - 22))
    tail = stream.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < 22:
        raise _damaged(file, "it has no table of contents at its end")
    length = int.from_bytes(tail[at + 12 : at + 16], "little")
    end = size - len(tail) + at
    start = max(0, end - _BYTES_64)
    stream.seek(start)
    record = stream.read(end - start)
    locator = record[-20:]
    if locator[:4] == _LOCATOR_64:
        # zipfile uses the record right before the locator wherever that points, so no other one may be checked here
        if record[:4] != _END_64 or int.from_bytes(locator[8:16], "little") != start:
            raise _damaged(file, "its table of contents is not where it should be")
        length = int.from_bytes(record[40:48], "little")
    if length > _MAX_LIST_BYTES:
        raise _damaged(file, f"its table of contents should have {length:,} bytes, more than {_MAX_LIST_BYTES:,}")
    stream.seek(0)


def _checked(members: list[zipfile.ZipInfo], file: Path) -> list[zipfile.ZipInfo]:
    """Check all members; returns those to extract."""
    if len(members) > MAX_MEMBERS:
        raise _refused(file, f"it has {len(members):,} files, more than {MAX_MEMBERS:,}")
    wanted: dict[str, zipfile.ZipInfo] = {}
    for member in members:
        name = member.filename
        parts = name.split("/")
        if name.startswith("/") or ".." in parts or "\\" in member.orig_filename or ":" in parts[0]:
            raise _refused(file, f"the name {name[:80]!r} leads out of it")
        if "\0" in member.orig_filename:
            raise _refused(file, f"the name {member.orig_filename[:80]!r} has a NUL in it")
        plain = parts[-1]
        is_wanted = any(fnmatch.fnmatchcase(plain, pattern) for pattern in WANTED)
        if member.is_dir() or "__MACOSX" in parts or plain.startswith(".") or not is_wanted:
            continue
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
            raise _refused(file, f"{name!r} is a link or a device, not a file")
        if member.flag_bits & 0x1:
            raise _refused(file, f"{name!r} is encrypted: unpack it yourself")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _refused(file, f"{name!r} is packed by method {member.compress_type}: unpack it yourself")
        if plain in wanted:
            raise _refused(file, f"it contains {wanted[plain].filename!r} and {name!r}: unpack it and pass one folder")
        wanted[plain] = member
    size = file.stat().st_size
    _check_places(wanted.values(), file, size)
    total = sum(member.file_size for member in wanted.values())
    if total > min(MAX_TOTAL_BYTES, _FREE_BYTES + MAX_GROWTH * size):
        raise _refused(file, f"it would grow from {size:,} to {total:,} bytes, which weights never do")
    if not wanted:
        shown = ", ".join(repr(member.filename) for member in members[:5])
        raise CheckpointError(f"{file} contains no checkpoint, but {shown or 'no files'}")
    return [wanted[name] for name in sorted(wanted)]


def _check_places(members: Iterable[zipfile.ZipInfo], file: Path, size: int) -> None:
    """Files must lie within the archive and must not share bytes."""
    end, before = 0, ""
    for member in sorted(members, key=lambda member: member.header_offset):
        if member.header_offset < 0:
            raise _damaged(file, f"{member.filename!r} begins before it")
        if member.header_offset < end:
            raise _refused(file, f"{member.filename!r} overlaps {before!r}")
        end, before = member.header_offset + 30 + member.compress_size, member.filename
        if end > size:
            raise _damaged(file, f"{before!r} ends at byte {end:,}, and it has {size:,}")


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path, file: Path) -> Path:
    """Extract one file; its CRC is checked at the end."""
    target, left = folder / member.filename.rpartition("/")[2], member.file_size
    with archive.open(member) as source, target.open("xb") as out:
        while block := source.read(min(_BLOCK, left + 1)):
            left -= len(block)
            if left < 0:
                raise _damaged(file, f"{member.filename!r} has more bytes than it says")
            out.write(block)
    if left:
        raise _damaged(file, f"{member.filename!r} has {left:,} bytes fewer than it says")
    return target


def _damaged(file: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{file} is not a whole zip archive: {what}. Fetch or copy it again")


def _refused(file: Path, what: str) -> CheckpointError:
    return CheckpointError(f"{file} is not unpacked: {what}")
