"""Which examples an optimizer step sees: a pure function of (seed, epoch, index), so a resumed run replays nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Protocol, Self

import numpy as np
import numpy.typing as npt

from bertkit.batch import split_by_budget
from bertkit.errors import ConfigError, DataError
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.training.trainer.loop_options import BatchT


class Plan(Protocol[BatchT]):
    """Where a :class:`~bertkit.training.trainer.loop.Trainer` gets its data from."""

    #: Optimizer steps of one pass over the data.
    steps_per_epoch: int
    #: What :meth:`size` counts, for the log: ``tokens`` or ``rows``.
    unit: str

    @property
    def max_tokens(self) -> int | None:
        """Maximum work in one micro-batch, in :attr:`unit`; None: a step is one batch."""
        ...

    def micro_batches(self, step: int) -> list[BatchT]:
        """This rank's part of a step of the run, in batches small enough for memory; empty only after step 0."""
        ...

    def rows(self, step: int) -> list[int]:
        """Numbers of the examples in step ``step``, over all ranks."""
        ...

    def size(self, step: int) -> int:
        """How much work step ``step`` is over all ranks, in :attr:`unit`."""
        ...

    def halve(self) -> int | None:
        """From now on make micro-batches of at most half as much work: how much; None if they cannot be smaller."""
        ...


def half_of(max_tokens: int | None, least: int) -> int | None:
    """Half of a maximum; None of none, and where not even an example of ``least`` fits into it."""
    return None if max_tokens is None or max_tokens // 2 < least else max_tokens // 2


class EpochPlan(Generic[BatchT]):
    """Every example once per epoch, in a new order each time.

    lengths: work of each example, for :meth:`size` and for the split into micro-batches (tokens, or 1 each).
    step_size: examples in one optimizer step; the last step of an epoch has the remaining ones.
    max_tokens: maximum work in one micro-batch; a longer example forms one by itself.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        collate: Callable[[list[int]], BatchT],
        *,
        step_size: int,
        max_tokens: int,
        seed: int,
        unit: str = "tokens",
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        if len(lengths) == 0:
            raise DataError("there is no training example")
        if not 0 <= rank < num_ranks <= min(step_size, len(lengths)):
            raise ConfigError(
                f"rank={rank}, num_ranks={num_ranks}: ranks count from 0, and there can be at most as many as examples "
                f"in a step ({min(step_size, len(lengths))})"
            )
        self.lengths = list(lengths)
        self.collate = collate
        self.step_size = step_size
        self.max_tokens = max_tokens
        self.seed = seed
        self.unit = unit
        self.rank, self.num_ranks = rank, num_ranks
        self.steps_per_epoch = math.ceil(len(self.lengths) / step_size)
        self._order = (-1, np.empty(0, np.int64))

    def rows(self, step: int) -> list[int]:
        epoch, index = divmod(step, self.steps_per_epoch)
        order = self._order  # read once: another thread may be in another epoch
        if order[0] != epoch:
            self._order = order = (epoch, epoch_order(len(self.lengths), self.seed, epoch))
        rows: list[int] = order[1][index * self.step_size : (index + 1) * self.step_size].tolist()
        return rows

    def size(self, step: int) -> int:
        return sum(self.lengths[row] for row in self.rows(step))

    def micro_batches(self, step: int) -> list[BatchT]:
        # Sorted by length, so that each micro-batch holds similar lengths; within a step the order does not affect
        # the gradient.
        rows = sorted(self.rows(step), key=self.lengths.__getitem__)[self.rank :: self.num_ranks]
        return [self.collate(part) for part in split_by_budget(rows, self.lengths, self.max_tokens)]

    def halve(self) -> int | None:
        found = half_of(self.max_tokens, min(self.lengths))
        self.max_tokens = found or self.max_tokens
        return found


class WholeSteps(Generic[BatchT]):
    """Steps whose rows belong together; for a single rank.

    ``steps_of`` gives the examples of the steps of an epoch, equally many steps for every epoch; without ``max_tokens``
    a step is one batch, because its rows are compared with each other.
    """

    unit = "tokens"

    def __init__(
        self,
        lengths: Sequence[int],
        collate: Callable[[list[int]], BatchT],
        steps_of: Callable[[int], Sequence[npt.NDArray[np.int64]]],
        max_tokens: int | None = None,
    ) -> None:
        self.lengths, self.collate, self.steps_of, self.max_tokens = lengths, collate, steps_of, max_tokens
        self._epoch = (0, steps_of(0))
        self.steps_per_epoch = len(self._epoch[1])

    def rows(self, step: int) -> list[int]:
        epoch, index = divmod(step, self.steps_per_epoch)
        current = self._epoch  # read once: another thread may be in another epoch
        if current[0] != epoch:
            self._epoch = current = (epoch, self.steps_of(epoch))
        rows: list[int] = current[1][index].tolist()
        return rows

    def size(self, step: int) -> int:
        return sum(self.lengths[row] for row in self.rows(step))

    def micro_batches(self, step: int) -> list[BatchT]:
        if self.max_tokens is None:
            return [self.collate(self.rows(step))]
        rows = sorted(self.rows(step), key=self.lengths.__getitem__)
        return [self.collate(part) for part in split_by_budget(rows, self.lengths, self.max_tokens)]

    def halve(self) -> int | None:
        found = half_of(self.max_tokens, min(self.lengths))
        self.max_tokens = found or self.max_tokens
        return found


def epoch_order(num_examples: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """A permutation that depends only on its arguments: int64 ``(num_examples,)``."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, epoch))))
    return generator.permutation(num_examples)


class Prefetched(Generic[BatchT]):
    """A plan whose next steps are made while the model computes the current one; use it in a ``with`` block.

    The batches of a step are a pure function of the step, so the data is the same for any number of workers. Workers
    are threads: the store's cache and the index of examples, which may be gigabytes, exist once, and batches are not
    copied between processes. One step more than there are workers is held in memory.
    """

    def __init__(self, plan: Plan[BatchT], *, num_workers: int = 1, end: int | None = None) -> None:
        if num_workers < 0:
            raise ConfigError(f"num_workers must be at least 0, got {num_workers}")
        self.plan = plan
        self.steps_per_epoch, self.unit = plan.steps_per_epoch, plan.unit
        self._num_ahead = 1 + num_workers
        self._end = end
        self._lock = ForkSafeLock()
        self._pending: dict[int, Future[list[BatchT]]] = {}
        self._pool = ThreadPoolExecutor(num_workers, "bertkit-batches") if num_workers else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Discard what was made in advance and end the threads. Steps can still be asked for."""
        with self._lock:
            pool, self._pool = self._pool, None
            self._pending.clear()
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def micro_batches(self, step: int) -> list[BatchT]:
        """The batches of a step. What the plan raised while it made them is raised here, not earlier."""
        made = self._made(step)
        return self.plan.micro_batches(step) if made is None else made

    # Both are asked for steps that are long done, for which no batch must be made again.
    def rows(self, step: int) -> list[int]:
        return self.plan.rows(step)

    def size(self, step: int) -> int:
        return self.plan.size(step)

    @property
    def max_tokens(self) -> int | None:
        return self.plan.max_tokens

    def halve(self) -> int | None:
        """What was made in advance is discarded, whole or in the making."""
        found = self.plan.halve()
        with self._lock:
            self._pending.clear()
        return found

    def _made(self, step: int) -> list[BatchT] | None:
        """The batches of a step, while the next steps are begun; None without threads."""
        with self._lock:
            if self._pool is None:
                return None
            end = step + 1 + self._num_ahead
            wanted = range(step, max(step + 1, end if self._end is None else min(self._end, end)))
            for old in [number for number in self._pending if number not in wanted]:
                self._pending.pop(old).cancel()
            for number in wanted:
                if number not in self._pending:
                    self._pending[number] = self._pool.submit(self.plan.micro_batches, number)
            future = self._pending[step]
        return future.result()
