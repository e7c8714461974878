"""What bertkit's own optimizers share: the loop over the groups, and Adam's two running means."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from bertkit.errors import ConfigError
from bertkit.optim.groups import num_parts


class GroupOptimizer(Optimizer):
    """An optimizer that updates the parameters of a group together.

    Subclasses implement :meth:`_update`. All state is tensors in ``self.state[p]``, as the training loop's snapshots
    require.

    Args:
        params: parameters, or groups of them, which may have their own settings.
        lr: peak rate.
        betas: decay of the running mean of the gradient and of its square.
        eps: added to the root of the mean square.
        weight_decay: times the rate, the share of a weight that is subtracted in each step.
        own: further settings of the subclass.

    Raises:
        ConfigError: a setting out of bounds.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        **own: Any,
    ) -> None:
        check_adam_settings(lr, betas, eps)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, **own})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient. ``closure`` recomputes the loss first, as in torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            names = group.get("names") or [""] * len(group["params"])
            active = [(p, name) for p, name in zip(group["params"], names, strict=True) if p.grad is not None]
            if active:
                params, grads = [p for p, _ in active], [p.grad for p, _ in active]
                self._update(params, grads, [num_parts(name) for _, name in active], group)
        return loss

    @abstractmethod
    def _update(self, params: list[Tensor], grads: list[Tensor], parts: list[int], group: dict[str, Any]) -> None:
        """Change ``params`` in place.

        Args:
            params: those of the group that have a gradient.
            grads: their gradients; must not be changed.
            parts: number of equal parts of each parameter along axis 0, see
                :func:`bertkit.optim.groups.num_parts`.
            group: the group's settings.
        """

    def _running(self, key: str, params: list[Tensor]) -> list[Tensor]:
        """The state ``key`` of each parameter, with its shape; initialised to zeros."""
        for p in params:
            if key not in self.state[p]:
                self.state[p][key] = torch.zeros_like(p)
        return [self.state[p][key] for p in params]

    def _adam_directions(
        self, params: list[Tensor], grads: list[Tensor], betas: tuple[float, float], eps: float
    ) -> list[Tensor]:
        """Bias-corrected ``m / (sqrt(v) + eps)`` after adding ``grads`` (Kingma & Ba 2015, algorithm 1).

        Returns:
            New tensors, one per parameter, which the caller may change.
        """
        means, squares = self._running("exp_avg", params), self._running("exp_avg_sq", params)
        for p in params:
            # On the CPU, so that reading it does not synchronise with the device.
            self.state[p]["step"] = self.state[p].get("step", torch.zeros((), device="cpu")) + 1
        counts = [self.state[p]["step"].item() for p in params]
        b1, b2 = betas
        torch._foreach_lerp_(means, grads, 1 - b1)
        torch._foreach_mul_(squares, b2)
        torch._foreach_addcmul_(squares, grads, grads, value=1 - b2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, [math.sqrt(1 - b2**count) for count in counts])
        torch._foreach_add_(roots, eps)
        directions = torch._foreach_div(means, roots)
        torch._foreach_div_(directions, [1 - b1**count for count in counts])
        return list(directions)


def split_parts(tensors: list[Tensor], parts: list[int]) -> list[Tensor]:
    """Views of each tensor's equal parts along axis 0, in order."""
    return [part for tensor, count in zip(tensors, parts, strict=True) for part in tensor.chunk(count)]


def check_adam_settings(learning_rate: float, betas: tuple[float, float], eps: float) -> None:
    """Refuse settings with which the update is undefined or ascends.

    Raises:
        ConfigError: naming the setting.
    """
    if not (math.isfinite(learning_rate) and learning_rate >= 0):
        raise ConfigError(f"learning_rate must be a finite number of at least 0, got {learning_rate}")
    if not all(0 <= beta < 1 for beta in betas):
        raise ConfigError(f"betas must both be from 0 to below 1, got {betas}")
    if not eps > 0:
        raise ConfigError(f"eps must be above 0, got {eps}: a weight without a gradient would become NaN")
