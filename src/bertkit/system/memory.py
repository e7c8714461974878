"""Turn failed allocations into a clear error. Imports no torch."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

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
    """Inside the block, memory that runs out on the CPU (also under ``ulimit -v``) or a GPU is a ResourceError.

    ``advice``, what to do, is the end of its message.
    """
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
