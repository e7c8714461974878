"""Ctrl-C and SIGTERM: training finishes its step, saves and stops."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self


class Interrupted(KeyboardInterrupt):
    """Work was stopped by a signal after everything was saved."""

    def __init__(self, message: str, signum: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.signum = signum

    @property
    def exit_code(self) -> int:
        """128 plus the number of the signal, as in shells."""
        return 128 + int(self.signum)


@contextmanager
def unwinding() -> Iterator[None]:
    """Inside, SIGTERM raises Interrupted, so that what was begun is removed as after Ctrl-C.

    Where something else handles the signal, as :class:`Interrupts` does, and in other threads, this does nothing.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    process = os.getpid()

    def stop(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() != process:  # a worker process, which has a copy of this
            os.kill(os.getpid(), number)
        raise Interrupted(f"stopped by {signal.Signals(number).name}", number)

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Interrupts:
    """Inside a ``with`` block the first Ctrl-C or SIGTERM is only recorded; a second one stops immediately.

    Signals can be caught in the main thread only; in other threads this does nothing. A launcher (``torchrun``)
    forwards a Ctrl-C that the terminal has already sent, so a ``launched`` process ignores the second signal.
    """

    def __init__(self, *, launched: bool = False) -> None:
        self.launched = launched
        self.signum: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def check(self) -> None:
        """Call where it is safe to stop; Interrupted if a signal arrived since the block was entered."""
        if self.signum is not None:
            raise Interrupted(f"stopped by {signal.Signals(self.signum).name}", self.signum)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.signum is not None:
            if self.launched:
                return
            self._restore()
            raise KeyboardInterrupt("stopped at once by a second signal")
        self.signum = number

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __exit__(self, *_: object) -> None:
        self._restore()
