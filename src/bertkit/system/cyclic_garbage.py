"""Python's search for reference cycles, kept out of the start and the end of a command."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping

#: More objects than the imports of any command make (torch's: some 330,000).
START_UP_OBJECTS = 400_000


@contextlib.contextmanager
def no_collection_at_start_and_end() -> Iterator[None]:
    """For a process that ends with the block: the first search comes after :data:`START_UP_OBJECTS` new objects.

    Modules live as long as the process, but while they are imported Python looks through them again and again, and once
    more when it ends. From the first search on everything is as usual.
    """
    usual = gc.get_threshold()

    def back_to_usual(phase: str, info: Mapping[str, int]) -> None:
        if back_to_usual in gc.callbacks:
            gc.callbacks.remove(back_to_usual)
            gc.set_threshold(*usual)

    gc.callbacks.append(back_to_usual)
    gc.set_threshold(START_UP_OBJECTS, *usual[1:])
    try:
        yield
    finally:
        gc.freeze()
