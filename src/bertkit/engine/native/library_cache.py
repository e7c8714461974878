"""The folder of compiled libraries: what is loaded from there is run, so only this user's own, undamaged files count.

The name of a file ends in the SHA-256 of its content, so one rename puts both in place. Whatever else has such a name
(a damaged file, a link, a pipe, a file that others may change) is removed, and the library is built again.
"""

from __future__ import annotations

import contextlib
import os
import stat
from io import BufferedReader
from pathlib import Path


class UnavailableError(Exception):
    """There is no library here; the message says why."""


def private_folder(folder: Path) -> Path:
    """The folder without links in its path, made if need be; refused if another user could exchange what lies there."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    folder = folder.resolve()
    for path in (folder, *folder.parents):
        facts = path.stat()
        if facts.st_uid != os.geteuid() and (path == folder or facts.st_uid != 0):
            reason = f"another user owns {path}"
        elif _may_be_changed(facts, strictly=path == folder):
            reason = f"others may write to {path}"
        else:
            continue
        raise UnavailableError(f"{reason}, and what is loaded from {folder} is run; set XDG_CACHE_HOME")
    return folder


def _may_be_changed(facts: os.stat_result, *, strictly: bool) -> bool:
    """Whether others may exchange what is in a folder; ``strictly``, whether they may write to it at all."""
    if not strictly and facts.st_mode & stat.S_ISVTX:
        return False  # as in /tmp, where only owners may
    own_group = not strictly and _is_own_group(facts.st_gid)
    return bool(facts.st_mode & (0o002 if own_group else 0o022))


def _is_own_group(number: int) -> bool:
    """Whether this user is alone in a group, as in that of the same name which many systems make for each user."""
    import grp
    import pwd  # Windows has neither

    try:
        name, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(number)
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}


def find_library(folder: Path, name: str) -> Path | None:
    """The library of this name in a private folder; None if there is none. What is not as it was kept is removed."""
    for path in sorted(folder.glob(f"{name}-*.so")):
        if _is_as_kept(path):
            return path
        if path.is_dir() and not path.is_symlink():
            import shutil

            shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            path.unlink()
    return None


def keep_library(draft: Path, folder: Path, name: str) -> Path:
    """Give a finished library its place in a private folder; returns that."""
    draft.chmod(0o700)
    with draft.open("rb") as file:
        target = folder / f"{name}-{_sha256(file)}.so"
    draft.replace(target)
    return target


def _is_as_kept(path: Path) -> bool:
    try:  # neither follows a link nor waits for the writer of a pipe
        file = open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")  # noqa: SIM115
    except OSError:
        return False
    with file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            return False
        return path.stem.endswith(_sha256(file))


def _sha256(file: BufferedReader) -> str:
    import hashlib  # loads OpenSSL, which a library from a wheel does not need

    return hashlib.file_digest(file, "sha256").hexdigest()
