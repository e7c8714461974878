"""Files that are whole or not there: writing that survives a kill, hashes, and clear words for a full disk.

Also reading of small files that others wrote, so that none of them can hang a program or fill its memory.

Imports no torch. Whoever writes something that must not be found half (a model, a checkpoint, a token store) writes it
under another name, forces it to the disk with :func:`sync_file`, renames it, and then calls :func:`sync_folder`: the
name is on the disk only after that.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import hashlib
import json
import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError

from bertkit.errors import CheckpointError, ResourceError, shorten

#: Tokens of a vocabulary, and the bytes and values (see :func:`strict_json`) of its file. Of the models read here
#: LaBSE has the most tokens, 501,153, and XLM-R the largest file, 17.1 MB as an indented tokenizer.json.
MAX_TOKENS = 520_000
MAX_VOCABULARY_BYTES = 18 << 20
MAX_VOCABULARY_VALUES = 1_600_000
#: Published JSON files nest some ten deep; what is deeper than this could overrun the stack of whoever walks it.
MAX_DEPTH = 100
#: A larger whole number is no size, and would not fit a float.
MAX_DIGITS = 300
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS + 1))
_NESTING = {dict, list}
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def open_regular(file: Path) -> BufferedReader:
    """Open a file for reading, unless it is a folder, a pipe or a device.

    Raises:
        CheckpointError: it is none, does not exist, or may not be read.
    """
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise CheckpointError(f"{file} is {kind}, expected a file of a checkpoint")
        return file.open("rb")
    except FileNotFoundError:
        what = "is a link to a file that does not exist" if file.is_symlink() else "does not exist"
        raise CheckpointError(f"{file} {what}") from None
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror or error}") from None


def read_regular(file: Path, *, max_bytes: int) -> bytes:
    """The content of a regular file that is not absurdly large.

    Raises:
        CheckpointError: as :func:`open_regular`; more than ``max_bytes``, told before they are read.
    """
    with open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        try:
            content = stream.read(max_bytes + 1) if size <= max_bytes else b""
        except OSError as error:
            raise CheckpointError(f"{file} cannot be read: {error.strerror or error}") from None
    if max(size, len(content)) > max_bytes:
        raise CheckpointError(
            f"{file} has {max(size, len(content)):,} bytes; such a file has at most {max_bytes:,}. "
            "Fetch or save it again"
        )
    return content


def strict_json(text: bytes, *, max_values: int = 1_000_000) -> Any:
    """Parse JSON, refusing what the standard leaves undefined and what costs far more memory than its text.

    Args:
        text: UTF-8, without a byte order mark.
        max_values: how many values there may be; an object counts as four more, a name in one as two. One takes up to
            90 bytes of memory, however few characters it is written with.

    Raises:
        ValueError: not UTF-8, not JSON (then a ``json.JSONDecodeError``), a name twice in one object, NaN or infinity,
            text that UTF-8 cannot hold, a whole number of more than :data:`MAX_DIGITS`, too many values, nested too
            deeply. One line says what.
    """
    opened = text.count(b"{") + text.count(b"[")
    # Those inside texts too: never too few.
    found = opened + 3 * text.count(b"{") + 2 * text.count(b":") + text.count(b",")
    if found > max_values:
        raise ValueError(f"it holds some {found:,} values, more than the limit {max_values:,}")
    whole_number = _whole_number if _LONG_NUMBER.search(text) else None  # a call for each number costs a quarter more
    collecting = gc.isenabled()
    gc.disable()  # it would look again and again at what is all still needed, for a third of the time
    try:
        content = json.loads(
            text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=whole_number
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    finally:
        if collecting:
            gc.enable()
    if opened > MAX_DEPTH:
        _check_depth(content)
    if _SURROGATE.search(text):
        try:
            json.dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            character = error.object[error.start : error.end]
            raise ValueError(f"it holds {character!r}, half of a character that takes two") from None
    return content


def _check_depth(content: Any) -> None:
    level = [content]
    for _ in range(MAX_DEPTH):
        insides = (each.values() if type(each) is dict else each for each in level if type(each) in _NESTING)
        level = [each for inside in insides for each in inside if type(each) in _NESTING]
        if not level:
            return
    raise ValueError(f"it is nested too deeply (more than {MAX_DEPTH} levels)")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        times = Counter(name for name, _ in pairs)
        raise ValueError(f"it has {shorten(name[:160] for name in times if times[name] > 1)} more than once")
    return content


def _no_constant(name: str) -> None:
    raise ValueError(f"it holds {name}, which is not JSON")


def _whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"it holds a whole number of {len(digits):,} digits: {digits[:20]}...")
    return int(digits)


def half_pair_at(text: str) -> int | None:
    """Where a text has half of a surrogate pair, which JSON can spell and UTF-8 cannot hold; None where nowhere."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


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
