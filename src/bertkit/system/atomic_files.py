"""Files that are either complete or absent: writes that survive a kill, locks, hashes, clear errors for a full disk.

What must never be found half-written (a model, a checkpoint, a token store) is written under another name, flushed with
:func:`sync_file`, renamed, and followed by :func:`sync_folder`: only then is the name on disk.

Packages that only a write needs are imported there: whoever reads a model imports this module, too.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from bertkit.errors import ConfigError, ResourceError
from bertkit.system.interrupts import unwinding

if TYPE_CHECKING:
    from safetensors import SafetensorError

#: Seconds between two tries to get a lock.
_LOOK_S = 0.2

#: Of a folder that one process at a time writes to.
LOCK = ".lock"
#: The system's errors for a file without room -> the reason, where it is not the number of free bytes.
_NO_SPACE = {
    errno.ENOSPC: None,
    errno.EDQUOT: "your disk quota is used up",
    errno.EFBIG: "it exceeds the largest file size allowed here (ulimit -f)",
}


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace one file: a reader sees the old content or the new, also on a full disk. Creates missing folders."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    make_folder(path.parent)
    with disk_guard(path.parent, len(data), what=path.name):
        remove_old_drafts(path)
        replace_file(path, data, draft_of(path))


def make_folder(path: Path) -> None:
    """Create a folder and its parents; an existing one is fine."""
    try:
        with _writable(path.parent):
            path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ConfigError(f"{path} is a file, or lies in one; give the name of a folder") from None
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise ConfigError(f"the name {str(path)[:60]!r}... is too long for this file system") from None


def check_new_folder(path: Path) -> None:
    """Refuse, before any work, what :func:`new_folder` could not make after it; an empty folder may have the name."""
    if path.is_symlink():  # which a folder cannot replace
        raise ConfigError(f"{path} is a link; give the name of a new folder, or of the one that it leads to")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{path} exists and is not empty; give the name of a new folder")
    if not path.name:
        raise ConfigError(f"{str(path)!r} cannot be replaced; give the name of a new folder, not the current one")
    from tempfile import TemporaryDirectory

    above = next(folder for folder in path.absolute().parents if folder.exists())
    try:
        with TemporaryDirectory(dir=above, prefix=".bertkit-"):
            pass
    except NotADirectoryError:
        raise ConfigError(f"{path.parent} is a file, or lies in one; give the name of a folder") from None
    except OSError as error:
        raise ResourceError(f"cannot write {path}: {above}: {error.strerror}; give another folder") from None


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A new folder, whole or not at all: the ``with`` block fills the draft that it gets, which then gets the name."""
    check_new_folder(path)
    make_folder(path.parent)
    with draft_folder(path) as draft:
        try:
            yield draft
            if path.exists():
                path.rmdir()
            draft.replace(path)
            sync_folder(path.parent)
        except ResourceError as error:
            raise ResourceError(str(error).replace(str(draft), str(path))) from error


@contextlib.contextmanager
def draft_folder(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """A new folder beside ``path`` for the ``with`` block, removed at its end, as are those of killed processes."""
    remove_old_drafts(path)
    draft = draft_of(path)
    try:
        draft.mkdir(mode)
        yield draft
    finally:
        _remove_tree(draft)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A file of unknown size, whole or not at all: the ``with`` block writes the draft, which then gets the name."""
    remove_old_drafts(path)
    draft = draft_of(path)
    try:
        with unwinding(), disk_guard(path.parent, 0, what=path.name):
            yield draft
            sync_file(draft)
            draft.replace(path)
            sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes, temporary: Path) -> None:
    """:func:`write_atomically` for callers with their own names for unfinished files, who get the system's errors."""
    _replace(path.parent, {path.name: data}, {path.name: temporary})


def replace_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Replace files of a folder, none before all are on disk; an OSError is as the system raises it."""
    for name in contents:
        remove_old_drafts(folder / name)
    _replace(folder, contents, {name: draft_of(folder / name) for name in contents})


def _replace(folder: Path, contents: Mapping[str, bytes], drafts: Mapping[str, Path]) -> None:
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


def draft_of(path: Path) -> Path:
    """Where this call writes a file or folder before it is renamed."""
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}.{os.getpid()}.tmp")


def remove_old_drafts(path: Path) -> None:
    """Remove the drafts of a file or folder whose processes were killed."""
    import glob

    for old in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        writer = old.name.split(".")[-2]
        if not writer.isdigit() or _is_running(int(writer)):
            continue
        if old.is_dir():
            _remove_tree(old)
        else:
            old.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    if os.name == "nt":  # where signal 0 is not harmless
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Wait until the bytes of a file are on disk."""
    _sync(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # Windows flushes only writable handles


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on disk; does nothing on Windows, which has no handles of folders."""
    if os.name != "nt":
        _sync(path, os.O_RDONLY)


def _sync(path: Path, mode: int) -> None:
    handle = os.open(path, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def try_lock(file: IO[bytes] | IO[str]) -> bool:
    """Lock an open file against other processes until it is closed; False if another holds it."""
    try:
        import fcntl
    except ImportError:
        return _try_lock_on_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_lock_on_windows(file: IO[bytes] | IO[str]) -> bool:
    import msvcrt

    try:
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    return True


@contextlib.contextmanager
def held_lock(path: Path, busy: str) -> Iterator[None]:
    """Hold a lock file in a ``with`` block, for one writer at a time; what a killed process left of it binds nobody."""
    with _writable(path.parent):
        opened = path.open("ab")
    with opened as lock:
        held = try_lock(lock)
        try:  # another process may have removed the file since it was opened
            held = held and os.path.samestat(path.stat(), os.fstat(lock.fileno()))
        except FileNotFoundError:
            held = False
        if not held:
            raise ConfigError(busy)
        try:
            with unwinding():
                yield
        finally:
            try:
                path.unlink(missing_ok=True)
            except PermissionError:  # Windows deletes no file that is open, in this process or in one that waits
                lock.close()
                with contextlib.suppress(PermissionError):
                    path.unlink(missing_ok=True)


@contextlib.contextmanager
def awaited_lock(
    path: Path, busy: str, *, seconds: float = math.inf, waiting: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """:func:`held_lock`, waiting at most so many seconds for another process; ``waiting`` is called if it has to."""
    until, told = time.monotonic() + seconds, False
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(held_lock(path, busy))
                break
            except ConfigError:
                if time.monotonic() > until:
                    raise
            if not told:
                waiting()
            told = True
            time.sleep(_LOOK_S)
        yield


@contextlib.contextmanager
def claimed_folder(folder: Path, busy: str) -> Iterator[None]:
    """Be the only process that writes to a folder, made if missing, in a ``with`` block; removed if it stays empty."""
    make_folder(folder)
    try:
        with held_lock(folder / LOCK, busy):
            yield
    finally:
        with contextlib.suppress(OSError):  # it is not empty
            folder.rmdir()


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    """ResourceError that says what to do, where the system does not let the block write to a folder."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise ResourceError(
            f"cannot write to {folder}: {error.strerror}. Change its permissions, or work in a folder of your own, "
            "for example in a copy of this one"
        ) from None


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def disk_guard(
    folder: Path, needed_bytes: int, *, what: str, advice: str | None = "Free some space and try again"
) -> Iterator[None]:
    """Refuse work that does not fit into an existing folder's disk, and turn "no space left" into a clear error.

    ``needed_bytes`` is 0 where the size is not known. ``advice`` ends the message; None: it is part of another.
    """
    from safetensors import SafetensorError

    if _free(folder) < needed_bytes:
        raise ResourceError(_explain(folder, needed_bytes, what, None, advice))
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = _no_space(error)
        if number is None:
            raise
        raise ResourceError(_explain(folder, needed_bytes, what, _NO_SPACE[number], advice)) from error


def _free(folder: Path) -> int:
    import shutil

    return shutil.disk_usage(folder).free


def _remove_tree(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def is_full_disk(error: OSError | SafetensorError) -> bool:
    """Whether a write failed for lack of room: disk, quota, or largest file size."""
    return _no_space(error) is not None


def _no_space(error: OSError | SafetensorError) -> int | None:
    if isinstance(error, OSError):
        return error.errno if error.errno in _NO_SPACE else None
    # safetensors passes on the system's error as text only.
    return next((number for number in _NO_SPACE if f"os error {number}" in str(error)), None)


def _explain(folder: Path, needed: int, what: str, reason: str | None, advice: str | None) -> str:
    if reason is None:
        free = _free(folder)
        wanted = f"it needs about {needed / 1e6:,.0f} MB and " if needed else ""
        reason = f"{wanted}{free / 1e6:,.0f} MB are free"
    then = "" if advice is None else f". Nothing was overwritten. {advice}"
    return f"no room for {what} in {folder}: {reason}{then}"
