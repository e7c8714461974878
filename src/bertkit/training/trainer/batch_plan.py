"""Which examples an optimizer step sees: a pure function of (seed, epoch, index), so a resumed run replays nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from bertkit.batch import split_by_budget
from bertkit.errors import ConfigError, DataError

#: The input of one forward pass: a :class:`bertkit.batch.Batch`, or another type for another module.
BatchT = TypeVar("BatchT")


class Plan(Protocol[BatchT]):
    """Where a :class:`~bertkit.training.trainer.loop.Trainer` gets its data from."""

    #: Optimizer steps of one pass over the data.
    steps_per_epoch: int
    #: What :meth:`size` counts, for the log: ``tokens`` or ``rows``.
    unit: str

    def micro_batches(self, step: int) -> list[BatchT]:
        """This rank's part of optimizer step ``step`` (counted from 0 over the whole run), small enough for memory.

        With several ranks it may be empty, except for step 0.
        """
        ...

    def rows(self, step: int) -> list[int]:
        """Numbers of the examples in step ``step``, over all ranks."""
        ...

    def size(self, step: int) -> int:
        """How much work step ``step`` is over all ranks, in :attr:`unit`."""
        ...


class EpochPlan(Generic[BatchT]):
    """Every example once per epoch, in a new order each time.

    Args:
        lengths: work of each example, for :meth:`size` and for the split into micro-batches (tokens, or 1 each).
        collate: example numbers to a batch.
        step_size: examples in one optimizer step; the last step of an epoch has the remaining ones.
        max_tokens: most work in one micro-batch; a longer example forms one alone.
        seed: fixes the order.
        unit: see :class:`Plan`.
        rank, num_ranks: this process gets every ``num_ranks``-th example of a step, from the ``rank``-th.

    Raises:
        ConfigError: more ranks than examples in a step.
        DataError: there is no example.
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
        self._order: tuple[int, Any] = (-1, None)

    def rows(self, step: int) -> list[int]:
        epoch, index = divmod(step, self.steps_per_epoch)
        order = self._order  # read once: another thread may be in another epoch
        if order[0] != epoch:
            self._order = order = (epoch, epoch_order(len(self.lengths), self.seed, epoch))
        chosen = order[1][index * self.step_size : (index + 1) * self.step_size]
        return [int(row) for row in chosen]

    def size(self, step: int) -> int:
        return sum(self.lengths[row] for row in self.rows(step))

    def micro_batches(self, step: int) -> list[BatchT]:
        # Sorted by length, so that each micro-batch holds similar lengths; within a step the order does not affect
        # the gradient.
        rows = sorted(self.rows(step), key=self.lengths.__getitem__)[self.rank :: self.num_ranks]
        return [self.collate(part) for part in split_by_budget(rows, self.lengths, self.max_tokens)]


def epoch_order(num_examples: int, seed: int, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A permutation that depends only on its arguments: int64 ``(num_examples,)``."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, epoch))))
    return generator.permutation(num_examples)
