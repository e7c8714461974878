"""Make the batches of the next steps while the model computes the current one.

The batches of a step are a pure function of the step, so the data is the same for any number of workers. Workers are
threads: the store's cache and the index of examples, which may be gigabytes, exist once, and batches are not copied
between processes.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from types import TracebackType
from typing import Generic, Self

from bertkit.errors import ConfigError
from bertkit.training.trainer.batch_plan import BatchT, Plan


class Prefetched(Generic[BatchT]):
    """A plan whose next steps are made in advance. Itself a plan; use it in a ``with`` block, or :meth:`close` it.

    Args:
        plan: its methods are called from several threads at once.
        num_workers: threads that make steps. One step more than that is held in memory; 0: each step is made when it is
            asked for.
        end: the first step that nobody will ask for; None: there is always another.

    Raises:
        ConfigError: a negative number of workers.
    """

    def __init__(self, plan: Plan[BatchT], *, num_workers: int = 1, end: int | None = None) -> None:
        if num_workers < 0:
            raise ConfigError(f"num_workers must be at least 0, got {num_workers}")
        self.plan = plan
        self.steps_per_epoch, self.unit = plan.steps_per_epoch, plan.unit
        self._num_ahead = 1 + num_workers
        self._end = end
        self._lock = Lock()
        self._pending: dict[int, Future[tuple[list[BatchT], list[int], int]]] = {}
        self._pool = ThreadPoolExecutor(num_workers, "bertkit-batches") if num_workers else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Discard what was made in advance and end the threads. Steps can still be asked for."""
        with self._lock:
            pool, self._pool = self._pool, None
            self._pending.clear()
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def micro_batches(self, step: int) -> list[BatchT]:
        """The batches of a step.

        Raises:
            BertkitError: what the plan raised while it made them, here and not earlier.
        """
        made = self._made(step)
        return self.plan.micro_batches(step) if made is None else made[0]

    def rows(self, step: int) -> list[int]:
        made = self._made(step)
        return self.plan.rows(step) if made is None else made[1]

    def size(self, step: int) -> int:
        made = self._made(step)
        return self.plan.size(step) if made is None else made[2]

    def _made(self, step: int) -> tuple[list[BatchT], list[int], int] | None:
        """The batches, rows and size of a step, while the next steps are begun; None without threads."""
        with self._lock:
            if self._pool is None:
                return None
            end = step + 1 + self._num_ahead
            wanted = range(step, max(step + 1, end if self._end is None else min(self._end, end)))
            for old in [number for number in self._pending if number not in wanted]:
                self._pending.pop(old).cancel()
            for number in wanted:
                if number not in self._pending:
                    self._pending[number] = self._pool.submit(self._make, number)
            future = self._pending[step]
        return future.result()

    def _make(self, step: int) -> tuple[list[BatchT], list[int], int]:
        return self.plan.micro_batches(step), self.plan.rows(step), self.plan.size(step)
