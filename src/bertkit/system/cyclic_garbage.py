"""Keeps Python's garbage collector out of the start-up and the exit of a command, and out of a server's answers."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping

#: More objects than the imports of any command create (those of torch: some 330,000).
START_UP_OBJECTS = 400_000
#: New objects until the youngest are collected, such collections until the next older are, and these until all are.
SERVER_THRESHOLDS = 1_000, 2, 500
#: Collections of younger objects after which a server that has nothing to do collects all.
DUE = 10


@contextlib.contextmanager
def no_collection_at_start_and_end() -> Iterator[None]:
    """Delay the first garbage collection until :data:`START_UP_OBJECTS` objects exist, and skip the one at exit.

    Modules live as long as the process, yet the collector scans them many times while they are imported.
    """
    usual = gc.get_threshold()

    def back_to_usual(phase: str, info: Mapping[str, int]) -> None:
        gc.callbacks.remove(back_to_usual)
        gc.set_threshold(*usual)

    gc.callbacks.append(back_to_usual)
    gc.set_threshold(START_UP_OBJECTS, *usual[1:])
    try:
        yield
    finally:
        gc.freeze()


def collect_for_a_server() -> None:
    """End the start of a command that answers requests for long: its collections are short from now on.

    What there is now is left out. A full collection takes .1 s and more where many requests wait, and stops all
    threads; so it is left to :func:`collect_if_due`, unless the server is never idle.
    """
    gc.freeze()
    gc.collect(0)  # finds nothing, but ends the delay at the start, which would reset the thresholds later
    gc.set_threshold(*SERVER_THRESHOLDS)


def collect_if_due() -> None:
    """A full collection, if enough collections of younger objects came before it. To be called when nobody waits."""
    if gc.get_count()[2] >= DUE:
        gc.collect()
