"""What training does when a GPU has no memory left: the step again, in smaller micro-batches.

The loss of a step is a sum over its targets, so that its split into micro-batches affects rounding only. Dropout draws
from the state that the step began with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from bertkit.errors import ResourceError
from bertkit.system.console import say
from bertkit.training.trainer.batch_plan import Plan
from bertkit.training.trainer.loop_options import BatchT
from bertkit.training.trainer.parallel import Parallel

_ADVICE = "lower --max-tokens or the maximum length of a text, or compute in 16 bits (--precision bf16)"


def smaller_batches(plan: Plan[BatchT], step: int, parallel: Parallel, cause: BaseException) -> list[BatchT]:
    """The batches of a step, at most half as large as before; a ResourceError where they cannot be smaller."""
    told = str(cause).strip().split(". ")[0]
    if parallel.is_sharded:  # the other ranks are in the middle of a pass that this one would have to join
        raise ResourceError(f"step {step + 1}: a rank has no memory left ({told}); {_ADVICE}") from cause
    limit = plan.halve()
    if limit is None:
        raise ResourceError(
            f"step {step + 1}: no memory left, even for the smallest batch ({told}); {_ADVICE}"
        ) from cause
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    say(
        f"step {step + 1}: no memory left ({told}). The step is repeated with at most {limit:,} {plan.unit} at a time, "
        f"and so is the rest of the run: the result is the same to rounding. To start so: --max-tokens {limit}"
    )
    return plan.micro_batches(step)


def within_memory(
    compute: Callable[[Sequence[BatchT]], Tensor],
    batches: Sequence[BatchT],
    plan: Plan[BatchT],
    step: int,
    optimizer: Optimizer,
    device: torch.device,
    parallel: Parallel,
) -> Tensor:
    """What ``compute`` gives for the batches of a step; without memory for it again with smaller ones, from now on."""
    before = generator_states(device)
    while True:
        try:
            return compute(batches)
        except torch.OutOfMemoryError as error:
            optimizer.zero_grad(set_to_none=True)
            batches = smaller_batches(plan, step, parallel, error)
        restore_states(before, device)


def generator_states(device: torch.device) -> tuple[Tensor, Tensor | None]:
    """The states that dropout draws from; read on the host, without a wait for the device."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def restore_states(states: tuple[Any, Any], device: torch.device) -> None:
    """Undo what was drawn since :func:`generator_states`."""
    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state(states[1], device)
