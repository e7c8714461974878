"""Make the batches of the next steps while the model works on this one.

A step's batches are a pure function of the step, so it makes no difference who makes them or when: the stream is the
same for any number of workers. Workers are threads: the store's cache and the index of examples, which may be
gigabytes, exist once, and a batch need not be copied between processes.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from bertkit.errors import ConfigError

BatchT = TypeVar("BatchT")


class Steps(Protocol[BatchT]):
    """What :class:`bertkit.training.trainer.batch_plan.Plan` asks for; it describes each."""

    @property
    def steps_per_epoch(self) -> int: ...
    @property
    def unit(self) -> str: ...
    def micro_batches(self, step: int) -> list[BatchT]:
        """Batches of a step."""
        ...

    def rows(self, step: int) -> list[int]:
        """Numbers of a step's examples."""
        ...

    def size(self, step: int) -> int:
        """Work of a step."""
        ...


@dataclass(frozen=True, slots=True)
class _Made(Generic[BatchT]):
    batches: list[BatchT]
    rows: list[int]
    size: int


class Prefetched(Generic[BatchT]):
    """A plan whose next steps are made in advance. Itself a plan; use it in a ``with`` block, or :meth:`close` it.

    Args:
        plan: where steps come from. Its methods are called from several threads at once.
        num_workers: threads that make steps; 0: none, each step is made when it is asked for.
        depth: steps made in advance, at least ``num_workers``; None: one more than that. Each is held in memory.
        end: the first step that nobody will ask for; None: there is always another.

    Raises:
        ConfigError: a number out of bounds.
    """

    def __init__(
        self, plan: Steps[BatchT], *, num_workers: int = 1, depth: int | None = None, end: int | None = None
    ) -> None:
        if num_workers < 0:
            raise ConfigError(f"num_workers must be at least 0, got {num_workers}")
        if depth is not None and depth < max(1, num_workers):
            raise ConfigError(f"depth must be at least 1 and at least num_workers={num_workers}, got {depth}")
        self.plan = plan
        self.steps_per_epoch = plan.steps_per_epoch
        self.unit = plan.unit
        self._depth = 1 + num_workers if depth is None else depth
        self._end = end
        self._lock = Lock()
        self._pending: dict[int, Future[_Made[BatchT]]] = {}
        self._pool = ThreadPoolExecutor(num_workers, "bertkit-batches") if num_workers else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up what was made in advance and end the threads. Steps can still be asked for."""
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
        return self.plan.micro_batches(step) if made is None else made.batches

    def rows(self, step: int) -> list[int]:
        """See :meth:`bertkit.training.trainer.batch_plan.Plan.rows`."""
        made = self._made(step)
        return self.plan.rows(step) if made is None else made.rows

    def size(self, step: int) -> int:
        """See :meth:`bertkit.training.trainer.batch_plan.Plan.size`."""
        made = self._made(step)
        return self.plan.size(step) if made is None else made.size

    def _made(self, step: int) -> _Made[BatchT] | None:
        """A step, and the next ones begun; None without threads."""
        with self._lock:
            if self._pool is None:
                return None
            end = step + 1 + self._depth if self._end is None else min(self._end, step + 1 + self._depth)
            wanted = range(step, max(end, step + 1))
            for old in [number for number in self._pending if number not in wanted]:
                self._pending.pop(old).cancel()
            for number in wanted:
                if number not in self._pending:
                    self._pending[number] = self._pool.submit(self._make, number)
            future = self._pending[step]
        return future.result()

    def _make(self, step: int) -> _Made[BatchT]:
        return _Made(self.plan.micro_batches(step), self.plan.rows(step), self.plan.size(step))
