"""A run in phases: shorter examples for most of the steps, then longer ones (Devlin et al. 2019, appendix A.2).

Attention over 512 tokens costs more than over 128, and most of what a model learns it learns from short examples. It is
one run all the same: one optimizer state, one schedule, one log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Generic

from bertkit.training.plan import BatchT, Plan


class PhasedPlan(Generic[BatchT]):
    """Plans one after the other: a :class:`~bertkit.training.plan.Plan` that is a pure function of the step again.

    Each phase begins with the first step of its own plan. ``steps_per_epoch`` is that of the first phase throughout:
    it only sets how often a run is evaluated.

    Args:
        phases: plans that count in the same unit, each with the number of its steps, at least one. The last one also
            has all steps beyond the sum.
    """

    def __init__(self, phases: Sequence[tuple[Plan[BatchT], int]]) -> None:
        assert phases, "a run has at least one phase"
        assert all(num_steps > 0 for _, num_steps in phases), "a phase has at least one step"
        self.plans = [plan for plan, _ in phases]
        #: The first step of each phase.
        self.starts = [0, *accumulate(num_steps for _, num_steps in phases[:-1])]
        assert all(a < b for a, b in pairwise(self.starts))
        self.steps_per_epoch = self.plans[0].steps_per_epoch
        self.unit = self.plans[0].unit

    def locate(self, step: int) -> tuple[Plan[BatchT], int]:
        """The plan that step ``step`` belongs to, and its number there."""
        phase = bisect_right(self.starts, step) - 1
        return self.plans[phase], step - self.starts[phase]

    def micro_batches(self, step: int) -> list[BatchT]:
        plan, own_step = self.locate(step)
        return plan.micro_batches(own_step)

    def rows(self, step: int) -> list[int]:
        plan, own_step = self.locate(step)
        return plan.rows(own_step)

    def size(self, step: int) -> int:
        plan, own_step = self.locate(step)
        return plan.size(own_step)
