"""Memory of this process: kept for reuse while a loop runs, and a clear error when it runs out."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from bertkit.errors import BertkitError, ResourceError

#: What numpy, torch and C++ say when memory runs out, in their RuntimeErrors.
_SIGNS = (
    "can't allocate memory",
    "out of memory",
    "bad_alloc",
    "cannot allocate memory",
    "unable to allocate",
    "can't start new thread",
    "could not create a primitive",  # oneDNN
)


@contextmanager
def memory_guard(advice: str) -> Iterator[None]:
    """Inside the block, memory that runs out on the CPU (also under ``ulimit -v``) or a GPU is a ResourceError."""
    try:
        yield
    except BertkitError:
        raise
    except (MemoryError, RuntimeError, OSError) as error:
        text = str(error)
        failed = isinstance(error, MemoryError) or any(sign in text.lower() for sign in _SIGNS)
        if not failed and getattr(error, "errno", None) != errno.ENOMEM:
            raise
        reason = f" ({text.splitlines()[0][:200]})" if text else ""
        raise ResourceError(f"out of memory{reason}. {advice}") from error


#: Options of glibc's ``mallopt``: how much free memory at the end of the heap is returned to the system, and how large
#: a request is served by the system directly. If neither is set, both rise with what a program frees, up to ``_USUAL``.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_USUAL = {_TRIM_THRESHOLD: 64 << 20, _MMAP_THRESHOLD: 32 << 20}
_KEEP = {_TRIM_THRESHOLD: 2**31 - 1, _MMAP_THRESHOLD: 2**30}


@contextmanager
def freed_memory_kept(*, enabled: bool = True) -> Iterator[None]:
    """Inside the block, freed memory serves later requests; at its end it goes back to the system.

    Without this, glibc asks the system for each large array, which then fills it with zeros page by page: a sixth of a
    training step in bf16. For the whole process. An older glibc keeps no array above 32 MB. Nothing changes under other
    C libraries, or if the environment says how glibc allocates. See ``docs/decisions/0150-training-on-a-cpu.md``.
    """
    glibc = _glibc() if enabled and not _set_by_user() else None
    if glibc is None:
        yield
        return
    for option, value in _KEEP.items():
        if not glibc.mallopt(option, value):
            glibc.mallopt(option, _USUAL[option])
    try:
        yield
    finally:
        for option, value in _USUAL.items():
            glibc.mallopt(option, value)
        glibc.malloc_trim(0)


def _set_by_user() -> bool:
    named = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"} & os.environ.keys()
    return bool(named) or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "")


@cache
def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
