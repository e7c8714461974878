"""Locks for processes that may be forked while a thread holds one.

The thread that holds a lock does not exist in a forked child, so nobody would ever release it there. Every lock of
bertkit is therefore one of these. They cannot help libraries with threads of their own: ONNX Runtime, and torch with
OpenMP, promise nothing after a fork. A pool of processes that uses models should be started with "spawn".
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import RLock
from weakref import WeakMethod, WeakSet


class ForkSafeLock:
    """A lock that a forked child finds released, but for its own thread's; a thread may take it again.

    repair: weakly held; called in the child if the lock was held: what it guards may have been half changed.
    """

    def __init__(self, repair: Callable[[], object] | None = None) -> None:
        self._lock = RLock()
        self._repair = None if repair is None else WeakMethod(repair)
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def _renew(self) -> None:
        if self._lock.acquire(blocking=False):  # nobody's, or that of the thread that has forked
            self._lock.release()
            return
        self._lock = RLock()
        if self._repair is not None and (repair := self._repair()) is not None:
            repair()


_all: WeakSet[ForkSafeLock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_all):
        lock._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
