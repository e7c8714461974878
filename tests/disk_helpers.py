"""A disk that is full, without filling one, and a folder that may not be written."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """The system refuses to write more into one file, in the middle of the write, as a full disk does."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limit[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """The system lets nobody write to a folder, not even the superuser, in this thread; skips where that cannot be."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    granted = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice
    libc = ctypes.CDLL(None) if os.geteuid() == 0 else None
    if libc is not None:
        libc.capget(header, granted)
        reduced = (ctypes.c_uint32 * 6)(*granted)
        reduced[0] &= ~0b111  # to change owners, to write in spite of a mode, to read in spite of one
        libc.capset(header, reduced)
    mode = folder.stat().st_mode
    folder.chmod(0o555)
    try:
        if os.access(folder, os.W_OK, effective_ids=True):
            pytest.skip("this user may write everywhere")
        yield
    finally:
        folder.chmod(mode)
        if libc is not None:
            libc.capset(header, granted)
