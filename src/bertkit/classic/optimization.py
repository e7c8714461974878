"""``optimization.py`` of google-research/bert: optimizer, schedule and clipping in one step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from bertkit.errors import ConfigError, TrainingError
from bertkit.optim import AdamWeightDecay, original_schedule, parameter_groups
from bertkit.optim.groups import set_learning_rate, with_rates

__all__ = ["AdamWeightDecayOptimizer", "create_optimizer"]

#: The global norm that gradients are scaled down to.
CLIP_NORM = 1.0


class AdamWeightDecayOptimizer(AdamWeightDecay):
    """What the original's ``train_op`` does: clip, set the rate of this step, update, count the step.

    Made by :func:`create_optimizer`. ``state_dict`` holds the step too, so a saved optimizer goes on where it stopped.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], init_lr: float, schedule: Callable[[int], float]) -> None:
        ready = [{**group, "global_step": 0} for group in with_rates(groups, init_lr)]
        super().__init__(ready, lr=init_lr)
        self.init_lr = init_lr
        self.schedule = schedule

    @property
    def global_step(self) -> int:
        """Updates so far."""
        return int(self.param_groups[0]["global_step"])

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update from the gradients of ``loss.backward()``; ``closure`` computes them first, as in torch.

        Gradients are changed in place: divided by their global norm where that is above 1.

        Raises:
            TrainingError: the norm is not finite. Nothing was updated.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._clip()
        step = self.global_step
        set_learning_rate(self, self.init_lr * self.schedule(step))
        super().step()
        for group in self.param_groups:
            group["global_step"] = step + 1
        return loss

    def _clip(self) -> None:
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not grads:
            return
        norm = nn.utils.get_total_norm(grads)
        if not torch.isfinite(norm):
            raise TrainingError(
                f"the gradients of step {self.global_step} have the norm {float(norm)}: the loss is not finite, or "
                "half precision overflowed. Nothing was updated; lower the learning rate and check the last batch"
            )
        if norm > CLIP_NORM:
            torch._foreach_mul_(grads, float(CLIP_NORM / norm))


def create_optimizer(
    model: nn.Module | Iterable[nn.Parameter],
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int | None = None,
    use_tpu: bool = False,
) -> AdamWeightDecayOptimizer:
    """The optimizer of Devlin et al. 2019, appendix A.2: Adam, decay 0.01, warm-up, linear decay, clipping at 1.

    Args:
        model: a model, or its parameters. The original takes the loss here and finds the variables in its graph; call
            ``loss.backward()`` and then ``step()`` instead. Biases and LayerNorm weights are not decayed.
        init_lr: peak rate.
        num_train_steps: the rate is 0 after this many steps.
        num_warmup_steps: steps during which the rate rises from 0; the first step therefore learns nothing. None or 0:
            no rise.
        use_tpu: accepted, no effect; the device is that of the parameters.

    Raises:
        ConfigError: a rate or a number of steps out of bounds, or no trainable parameter.
    """
    warmup = num_warmup_steps or 0
    if num_train_steps < 1 or not 0 <= warmup < num_train_steps:
        raise ConfigError(
            f"num_train_steps must be at least 1 and num_warmup_steps from 0 to below it, got {num_train_steps} and "
            f"{warmup}"
        )
    holder = model if isinstance(model, nn.Module) else nn.ParameterList(list(model))
    # Half a step more, so that rounding the product gives exactly this many steps.
    schedule = original_schedule(num_train_steps, warmup=(warmup + 0.5) / num_train_steps if warmup else 0.0)
    return AdamWeightDecayOptimizer(parameter_groups(holder, weight_decay=0.01), init_lr, schedule)
