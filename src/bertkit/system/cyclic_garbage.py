"""Keeps Python's garbage collector out of the start-up and the exit of a command."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping

#: More objects than the imports of any command create (those of torch: some 330,000).
START_UP_OBJECTS = 400_000


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
