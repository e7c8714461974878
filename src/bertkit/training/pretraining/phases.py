"""A run in phases: shorter examples for most of it, then longer ones (Devlin et al. 2019, appendix A.2).

Attention over 512 tokens costs more than over 128, and most of what a model learns it learns from short examples. It is
one run all the same: one optimizer state, one schedule, one log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from threading import Lock
from typing import Generic

from bertkit.training.trainer.batch_plan import BatchT, Plan


class Phases(ABC, Generic[BatchT]):
    """Plans one after the other, which together are a :class:`~bertkit.training.trainer.batch_plan.Plan`.

    ``steps_per_epoch`` is that of the first one throughout: it only sets how often a run is evaluated.

    Args:
        plans: they count in the same unit.
    """

    def __init__(self, plans: Sequence[Plan[BatchT]]) -> None:
        assert plans, "a run has at least one phase"
        self.plans = list(plans)
        self.steps_per_epoch = plans[0].steps_per_epoch
        self.unit = plans[0].unit

    @abstractmethod
    def locate(self, step: int) -> tuple[Plan[BatchT], int]:
        """The plan that step ``step`` belongs to, and its number there."""

    def micro_batches(self, step: int) -> list[BatchT]:
        plan, own_step = self.locate(step)
        return plan.micro_batches(own_step)

    def rows(self, step: int) -> list[int]:
        plan, own_step = self.locate(step)
        return plan.rows(own_step)

    def size(self, step: int) -> int:
        plan, own_step = self.locate(step)
        return plan.size(own_step)


class CountedPhases(Phases[BatchT]):
    """Each plan for a number of steps, from the first step of its own: a pure function of the step again.

    Args:
        phases: plans, each with the number of its steps, at least one. The last one also has all steps beyond the sum.
    """

    def __init__(self, phases: Sequence[tuple[Plan[BatchT], int]]) -> None:
        super().__init__([plan for plan, _ in phases])
        assert all(num_steps > 0 for _, num_steps in phases), "a phase has at least one step"
        #: The first step of each phase.
        self.starts = [0, *accumulate(num_steps for _, num_steps in phases[:-1])]
        assert all(a < b for a, b in pairwise(self.starts))

    def locate(self, step: int) -> tuple[Plan[BatchT], int]:
        phase = bisect_right(self.starts, step) - 1
        return self.plans[phase], step - self.starts[phase]


class TimedPhases(Phases[BatchT]):
    """One plan until the clock ends its phase, then another.

    The second one goes on with the number of the step that it takes over at: where that was need not be known to a
    resumed run, whose clock is past it.

    Args:
        first, second: the plans.
        is_over: whether the first phase has ended; asked with the number of a step until it has, and not again.
    """

    def __init__(self, first: Plan[BatchT], second: Plan[BatchT], is_over: Callable[[int], bool]) -> None:
        super().__init__([first, second])
        self._is_over = is_over
        self._lock = Lock()
        self._last_of_first = -1
        self._switch: int | None = None

    def locate(self, step: int) -> tuple[Plan[BatchT], int]:
        # What was once told of a step stays true: batches are made ahead of the clock, and a step is asked for again.
        with self._lock:
            if self._switch is None:
                if self._is_over(step):
                    self._switch = max(step, self._last_of_first + 1)
                else:
                    self._last_of_first = max(step, self._last_of_first)
            is_second = self._switch is not None and step >= self._switch
        return self.plans[is_second], step
