"""Takes away from this interpreter what Python on Windows does not have, and lets it replace and delete like Windows.

It stands in for a Windows machine where there is none; the libraries that bertkit uses still see Linux.
"""

from __future__ import annotations

import os
import signal
import subprocess  # noqa: F401  # which takes a Python with msvcrt for one on Windows
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = set("fcntl grp posix_ipc pty pwd resource syslog termios tty".split())
FUNCTIONS = (
    "chown fchmod fchown fork forkpty getegid geteuid getgid getgroups getloadavg getpgid getuid killpg mkfifo nice "
    "posix_fadvise posix_fallocate register_at_fork sched_getaffinity sched_yield setsid sysconf wait4"
).split()
SIGNALS = ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "pthread_sigmask", "setitimer", "SIGALRM")


def take_away() -> None:
    sys.modules["msvcrt"] = locks_of_windows()
    for name in MODULES:
        sys.modules.pop(name, None)
    for name in FUNCTIONS:
        delattr(os, name)
    for name in SIGNALS:
        delattr(signal, name)
    for name in ("replace", "rename"):
        setattr(os, name, refusing(getattr(os, name), 2))
    for name in ("unlink", "remove"):
        setattr(os, name, refusing(getattr(os, name), 1))


def locks_of_windows() -> ModuleType:
    """Of ``msvcrt``, what locks a part of a file."""
    import fcntl

    def locking(handle: int, mode: int, count: int) -> None:
        assert mode == msvcrt.LK_NBLCK
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, count, os.lseek(handle, 0, os.SEEK_CUR))

    msvcrt: Any = ModuleType("msvcrt")
    msvcrt.LK_NBLCK, msvcrt.locking = 2, locking
    return msvcrt


def refusing(function: Callable[..., Any], paths: int) -> Callable[..., Any]:
    """The function, with a PermissionError where one of its first arguments or a file in it is open here."""

    def call(*given: Any, **options: Any) -> Any:
        if options.get("dir_fd") is None:
            for path in map(Path, given[:paths]):
                if any(file.is_relative_to(path.resolve()) for file in open_files() if path.exists()):
                    raise PermissionError(13, "The process cannot access the file: another one uses it", str(path))
        return function(*given, **options)

    return call


def open_files() -> set[Path]:
    """Opened or mapped."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.add(link.readlink())
        except OSError:  # that of the listing itself
            continue
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return found | {Path(line.split(maxsplit=5)[5]) for line in maps if len(line.split(maxsplit=5)) == 6}
