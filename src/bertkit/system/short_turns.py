"""Threads that wait for Python's lock get it sooner."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bertkit.system.fork_locks import ForkSafeLock

#: Seconds that a thread runs Python while another waits for it; Python's own default is .005.
TURN_S = 0.0002
_lock = ForkSafeLock()
_blocks, _usual = 0, 0.0


@contextmanager
def short_turns() -> Iterator[None]:
    """Shorten the turns of all threads of the process to :data:`TURN_S` while the block runs.

    It helps a thread that returns from C often while another one runs Python: each time it waits for its turn.
    """
    global _blocks, _usual
    with _lock:
        if not _blocks:
            _usual = sys.getswitchinterval()
            sys.setswitchinterval(min(TURN_S, _usual))
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _end(_blocks - 1)


def _end(blocks: int) -> None:
    """Note how many blocks are left; after the last one turns are as long as before."""
    global _blocks
    if _blocks and not blocks:
        sys.setswitchinterval(_usual)
    _blocks = max(blocks, 0)


if hasattr(os, "register_at_fork"):  # the threads of blocks do not exist in a child
    os.register_at_fork(after_in_child=lambda: _end(0))
