"""Steps whose losses and norm are still on the device, so that the host need not wait for it at every step.

A step with a loss or a norm that is not finite must not change the weights, and the host learns of it later. So the
device decides: it keeps a flag that once set stays set, with which torch's fused AdamW leaves all weights and its own
state as they are, also in the steps after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import Optimizer

from bertkit.config.number_formats import Precision
from bertkit.training.trainer.loop_options import Progression, StepResult
from bertkit.training.trainer.precision import overflowed

#: Steps between readings.
READ_EVERY = 20


@dataclass(frozen=True, slots=True)
class Unread:
    """A step that was asked for: ``values`` are the sums of the terms of its loss, then the norm of its gradients."""

    step: int
    values: Tensor
    num_targets: dict[str, float]
    learning_rate: float

    def result(self, loss_sums: dict[str, float], norm: float, precision: Precision, at: Progression) -> StepResult:
        """What is known of the step once the values are."""
        losses = {name: value / self.num_targets[name] for name, value in loss_sums.items()}
        loss = sum(losses.values())
        skipped = overflowed(loss, norm, precision, at)
        return StepResult(self.step, loss, losses, norm, self.learning_rate, self.num_targets, skipped)


def read(steps: Sequence[Unread]) -> Iterator[tuple[Unread, dict[str, float], float]]:
    """Each step with the sums of its loss and its norm: one wait for the device for all of them."""
    numbers = iter(torch.cat([each.values for each in steps]).tolist())
    for each in steps:
        *sums, norm = (next(numbers) for _ in range(len(each.values)))
        yield each, dict(zip(each.num_targets, sums, strict=True)), norm


def can_skip(optimizer: Optimizer) -> bool:
    """Whether the device can tell the optimizer to leave everything as it is: torch's AdamW, fused."""
    return isinstance(optimizer, torch.optim.AdamW) and all(group.get("fused") for group in optimizer.param_groups)


def skip_if_failed(optimizer: Optimizer, failed: Tensor | None, values: Tensor) -> Tensor:
    """Tell the optimizer; returns the flag, float ``()``: 1 once a value was not finite."""
    now = (~torch.isfinite(values)).any().float()
    flag = now if failed is None else torch.maximum(failed, now)
    optimizer.found_inf = flag  # type: ignore[attr-defined]  # as torch.amp.GradScaler does
    return flag


def add_to(totals: dict[str, float], more: Mapping[str, float]) -> None:
    """Add values to the totals of the same names."""
    for name, value in more.items():
        totals[name] = totals.get(name, 0.0) + value
