"""Files that are either whole or absent: writes that survive a kill, locks, hashes, clear errors for a full disk.

Imports no torch. Whatever must never be found half-written (a model, a checkpoint, a token store) is written under
another name, flushed to disk with :func:`sync_file`, renamed, and followed by :func:`sync_folder`: only then is the
name on disk.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from bertkit.errors import ResourceError

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace one file: a reader sees the old content or the new, never a part. Makes the folder where it is missing.

    Args:
        path: the file.
        content: bytes, or text that is written as UTF-8.

    Raises:
        ResourceError: the disk is full; the old content stays.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    with disk_guard(path.parent, len(data), what=path.name):
        replace_file(path, data, path.with_name(f".{path.name}.{os.getpid()}.tmp"))


def replace_file(path: Path, data: bytes, temporary: Path) -> None:
    """:func:`write_atomically` for a caller that has its own names for unfinished files, and its own errors.

    Args:
        path: the file.
        data: its new content.
        temporary: where it is written first; in the same folder. Removed when something fails.

    Raises:
        OSError: as the system gives it; the old content stays.
    """
    try:
        _write(temporary, data)
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def replace_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Replace files that belong together: none before all are on the disk.

    Args:
        folder: where they are; it must exist.
        contents: file name to new content.

    Raises:
        OSError: as the system gives it; the old files stay, all of them if the disk was full.
    """
    drafts = {name: folder / f".{name}.{os.getpid()}.tmp" for name in contents}
    try:
        for name, data in contents.items():
            _write(drafts[name], data)
        for name, draft in drafts.items():
            draft.replace(folder / name)
        sync_folder(folder)
    except BaseException:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
        raise


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Wait until the bytes of a file are on the disk."""
    _sync(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # Windows flushes only what may be written


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk; does nothing on Windows, which has no handle for a folder."""
    if os.name != "nt":
        _sync(path, os.O_RDONLY)


def _sync(path: Path, mode: int) -> None:
    handle = os.open(path, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file against other processes, until it is closed or the process ends, however it ends.

    Returns:
        False: another process holds it. Windows has no such lock: there it is always True, and a folder is only as
        safe as its user is careful.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def disk_guard(
    folder: Path, needed_bytes: int, *, what: str, advice: str = "Make room and try again"
) -> Iterator[None]:
    """Refuse work that the disk has no room for, and turn "no space left" into a clear error.

    Args:
        folder: where the work writes; it must exist.
        needed_bytes: about how much.
        what: what is written, for the message.
        advice: what to do next, the end of the message: only the caller knows how its work goes on.

    Raises:
        ResourceError: fewer than ``needed_bytes`` are free, or a write inside the block found the disk full.
    """
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise ResourceError(_explain(folder, needed_bytes, free, what, advice))
    try:
        yield
    except (OSError, SafetensorError) as error:
        if not is_full_disk(error):
            raise
        raise ResourceError(_explain(folder, needed_bytes, shutil.disk_usage(folder).free, what, advice)) from error


def is_full_disk(error: OSError | SafetensorError) -> bool:
    """Whether a failed write found no room: disk, quota, or largest size of a file."""
    if isinstance(error, OSError):
        return error.errno in _NO_SPACE
    return any(f"os error {number}" in str(error) for number in _NO_SPACE)  # it wraps the system's error in text only


def _explain(folder: Path, needed: int, free: int, what: str, advice: str) -> str:
    return (
        f"no room for {what} in {folder}: it needs about {needed / 1e6:,.0f} MB and {free / 1e6:,.0f} MB are free. "
        f"Nothing was overwritten. {advice}"
    )
