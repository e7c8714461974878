"""A forked child of a test, which may be stuck."""

from __future__ import annotations

import os
import signal
import time


def succeeds(child: int) -> bool:
    """Whether a child ends with exit code 0 within half a minute; one that is stuck is killed."""
    deadline = time.monotonic() + 30
    while not (done := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    if not done[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return done == (child, 0)
