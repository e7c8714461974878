"""An engine that the tasks of a loaded model share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from bertkit.engine.backend import Pack, Values, Wanted
from bertkit.engine.inference_engine import Advance, InferenceEngine, PartT
from bertkit.ragged import Ragged
from bertkit.system.fork_locks import ForkSafeLock


class SharedEngine(InferenceEngine):
    """An engine that computes one batch at a time, and notes lengths of rows and seconds for the thread that asked."""

    def __init__(self, engine: InferenceEngine, lock: ForkSafeLock, notes: threading.local) -> None:
        super().__init__(engine.backend)
        self._lock, self._notes = lock, notes

    def in_packs(
        self, rows: Ragged, wanted: Wanted, read: Callable[[Pack, Values], PartT], advance: Advance
    ) -> Iterator[tuple[Sequence[int], PartT]]:
        self._notes.lengths += rows.lengths.tolist()
        with self._lock:
            begun = time.perf_counter()
            try:
                yield from super().in_packs(rows, wanted, read, advance)
            finally:
                self._notes.encoding += time.perf_counter() - begun

    def encoder(self) -> InferenceEngine:
        return SharedEngine(super().encoder(), self._lock, self._notes)
