"""What training does when a GPU has no memory left: the step again, in smaller micro-batches.

The loss of a step is a sum over its targets, so that its split into micro-batches affects only rounding and dropout,
which draws from the state that the step began with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from bertkit.errors import ResourceError
from bertkit.system.console import say
from bertkit.system.json_files import parsed
from bertkit.system.untrusted_files import Json
from bertkit.training.trainer.batch_plan import Plan
from bertkit.training.trainer.loop_options import BatchT
from bertkit.training.trainer.parallel import Parallel

_ADVICE = "lower --max-tokens or the maximum length of a text, or compute in 16 bits (--precision bf16)"


class MemoryLimit:
    """What micro-batches were halved to because there was no memory for them.

    max_work: their maximum on this rank, see :attr:`Plan.max_tokens`; None: they were not halved.
    """

    def __init__(self, optimizer: Optimizer, device: torch.device, parallel: Parallel) -> None:
        self.optimizer, self.device, self.parallel = optimizer, device, parallel
        self.max_work: int | None = None

    def within(
        self, compute: Callable[[Sequence[BatchT]], Tensor], batches: Sequence[BatchT], plan: Plan[BatchT], step: int
    ) -> Tensor:
        """What ``compute`` gives for the batches of a step; without memory for it again with smaller ones, from now on.

        Raises:
            ResourceError: they cannot be smaller.
        """
        before = generator_states(self.device)
        while True:
            try:
                return compute(batches)
            except torch.OutOfMemoryError as error:
                told = str(error).strip().split(". ")[0]
            # Not in the block above, in which the error still holds the tensors of the pass that failed.
            self.optimizer.zero_grad(set_to_none=True)
            batches = self._smaller(plan, step, told)
            restore_states(before, self.device)

    def _smaller(self, plan: Plan[BatchT], step: int, told: str) -> list[BatchT]:
        """The batches of a step, at most half as large as before."""
        if self.parallel.is_sharded:  # the other ranks are in the middle of a pass that this one would have to join
            raise ResourceError(f"step {step + 1}: a rank has no memory left ({told}); {_ADVICE}")
        limit = plan.halve()
        if limit is None:
            raise ResourceError(f"step {step + 1}: no memory left, even for the smallest batch ({told}); {_ADVICE}")
        self.max_work = plan.max_tokens
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        say(
            f"step {step + 1}: no memory left ({told}). The step is repeated with at most {limit:,} {plan.unit} at a "
            f"time, and so is the rest of the run: only rounding and dropout differ. To start so: --max-tokens {limit}"
        )
        return plan.micro_batches(step)

    def state(self) -> dict[str, Json]:
        """The maximum of each rank, for :meth:`restore`. Call it on every rank."""
        return {"max_work": [*self.parallel.gather(self.max_work)]}

    def restore(self, plan: Plan[BatchT], state: Mapping[str, Any], source: str) -> None:
        """Go on with micro-batches of the size of :meth:`state`; of another number of ranks with the smallest."""
        limits = parsed(state.get("max_work", []), list[int | None], f"{source}: max_work")
        smallest = min((limit for limit in limits if limit is not None), default=None)
        self.max_work = limits[self.parallel.rank] if len(limits) == self.parallel.num_ranks else smallest
        while self.max_work is not None and (plan.max_tokens or 0) > self.max_work and plan.halve() is not None:
            pass


def generator_states(device: torch.device) -> tuple[Tensor, Tensor | None]:
    """The states that dropout draws from; read on the host, without a wait for the device."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def restore_states(states: tuple[Any, Any], device: torch.device) -> None:
    """Undo what was drawn since :func:`generator_states`."""
    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state(states[1], device)
