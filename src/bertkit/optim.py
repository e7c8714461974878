"""Optimizers and learning-rate schedules for encoders.

Two recipes. *Sane* (the default) is bias-corrected AdamW (Loshchilov & Hutter 2019) with linear warm-up and linear
decay, the recipe that Mosbach et al. 2021 and Zhang et al. 2021 found stable. *Original* is what Devlin et al. 2019
published: Adam without bias correction, and a warm-up that begins at a learning rate of exactly 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bertkit.errors import ConfigError

#: ``schedule(step)`` is the factor for the peak learning rate at optimizer step ``step``, counted from 0.
Schedule = Callable[[int], float]

_LAYER = re.compile(r"(?:^|\.)encoder\.layer\.(\d+)\.")


def parameter_groups(
    model: nn.Module, *, weight_decay: float = 0.01, layer_decay: float | None = None
) -> list[dict[str, Any]]:
    """Group the trainable parameters by how the optimizer must treat them.

    Biases and LayerNorm weights are not decayed (every parameter with fewer than two axes; appendix A.2 of the paper
    decays "weights"). Frozen parameters (``requires_grad=False``) are in no group, so they are never touched.

    Args:
        model: anything with named parameters.
        weight_decay: decoupled decay of the other parameters.
        layer_decay: factor from one layer to the layer below (Sun et al. 2019, 0.95): the head has factor 1, the top
            layer ``layer_decay``, the embeddings ``layer_decay ** (L + 1)``. None: the same rate everywhere.

    Returns:
        Groups with ``params``, ``names``, ``weight_decay`` and ``lr_scale``; every trainable parameter is in one.
    """
    depth = 1 + max(
        (int(found[1]) for name, _ in model.named_parameters() if (found := _LAYER.search(name))), default=-1
    )
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        decay = weight_decay if parameter.ndim >= 2 else 0.0
        scale = 1.0 if layer_decay is None else layer_decay ** _distance_from_head(name, depth)
        group = groups.setdefault((decay, scale), {"params": [], "names": [], "weight_decay": decay, "lr_scale": scale})
        group["params"].append(parameter)
        group["names"].append(name)
    if not groups:
        raise ConfigError("the model has no trainable parameter: every one has requires_grad=False")
    return list(groups.values())


def _distance_from_head(name: str, depth: int) -> int:
    """Layers between a parameter and the task head: 0 for the head and the pooler, 1 for the top layer."""
    if found := _LAYER.search(name):
        return depth - int(found[1])
    return depth + 1 if re.search(r"(?:^|\.)embeddings\.", name) else 0


def adamw(
    groups: Iterable[dict[str, Any]],
    *,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    bias_correction: bool = True,
) -> Optimizer:
    """The optimizer of both recipes, over the groups of :func:`parameter_groups`.

    Args:
        groups: parameter groups; ``lr_scale`` in a group multiplies its learning rate.
        learning_rate: peak rate.
        betas: decay of the running mean of the gradient and of its square.
        eps: added to the root of the mean square (1e-6 as in the original code; torch's default is 1e-8).
        bias_correction: False gives :class:`AdamWeightDecay`, the original's update.
    """
    ready = [{**group, "lr": learning_rate * group.get("lr_scale", 1.0)} for group in groups]
    if not bias_correction:
        return AdamWeightDecay(ready, lr=learning_rate, betas=betas, eps=eps)
    # fused: one pass over parameter, gradient and both moments. On CPU the update is bound by memory, and for a small
    # encoder, whose word embeddings are half of all parameters, it is a visible share of a step.
    return torch.optim.AdamW(ready, lr=learning_rate, betas=betas, eps=eps, fused=True)


class AdamWeightDecay(Optimizer):
    """Adam as in the code published with the paper: no bias correction, decay added to the update.

    ``m = b1 m + (1 - b1) g``; ``v = b2 v + (1 - b2) g^2``; ``p -= lr (m / (sqrt(v) + eps) + decay p)``.

    Deviation from Kingma & Ba 2015: ``m`` and ``v`` start at 0 and are not divided by ``1 - b^t``, so with the usual
    betas the first update is ``(1 - b1) / sqrt(1 - b2)``, about 3.2 times, larger than the corrected one. Zhang et al.
    2021 name this as one reason for failed fine-tuning runs; it is here to reproduce the 2018 numbers.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient. ``closure`` recomputes the loss first, as in torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._update(group)
        return loss

    def _update(self, group: dict[str, Any]) -> None:
        params = [p for p in group["params"] if p.grad is not None]
        if not params:
            return
        for p in params:
            if not self.state[p]:
                self.state[p] = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        grads = [cast(Tensor, p.grad) for p in params]
        means = [self.state[p]["exp_avg"] for p in params]
        squares = [self.state[p]["exp_avg_sq"] for p in params]
        b1, b2 = group["betas"]
        torch._foreach_mul_(means, b1)
        torch._foreach_add_(means, grads, alpha=1 - b1)
        torch._foreach_mul_(squares, b2)
        torch._foreach_addcmul_(squares, grads, grads, value=1 - b2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, group["eps"])
        updates = torch._foreach_div(means, roots)
        if group["weight_decay"]:
            torch._foreach_add_(updates, params, alpha=group["weight_decay"])
        torch._foreach_add_(params, updates, alpha=-group["lr"])


def set_learning_rate(optimizer: Optimizer, learning_rate: float) -> None:
    """Set the rate of every group, its ``lr_scale`` applied."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group.get("lr_scale", 1.0)


def linear_schedule(num_steps: int, *, warmup: float = 0.1) -> Schedule:
    """Rise linearly for ``warmup * num_steps`` steps, then fall linearly to 0.

    No step is wasted: step 0 has factor ``1 / (W + 1)``, not 0, and 0 is reached only after the last step. From the
    peak on, the values are those of the usual schedule: ``(num_steps - step) / (num_steps - W)``.

    Args:
        num_steps: optimizer steps of the whole run.
        warmup: share of them that rises, from 0 (none) up to below 1.
    """
    warm = _num_warmup_steps(num_steps, warmup)
    return lambda step: (step + 1) / (warm + 1) if step < warm else max(0.0, (num_steps - step) / (num_steps - warm))


def original_schedule(num_steps: int, *, warmup: float = 0.1) -> Schedule:
    """The schedule of the published code: ``step / W`` while rising, so step 0 learns nothing, then ``1 - step / N``.

    Unlike :func:`linear_schedule` the fall is measured from step 0, so the rate drops by the share ``W / N`` at once
    when the warm-up ends.
    """
    warm = int(num_steps * warmup)
    _num_warmup_steps(num_steps, warmup)
    return lambda step: step / warm if step < warm else max(0.0, 1.0 - step / num_steps)


def _num_warmup_steps(num_steps: int, warmup: float) -> int:
    if num_steps < 1:
        raise ConfigError(f"a schedule needs at least one step, got num_steps={num_steps}")
    if not 0.0 <= warmup < 1.0:
        raise ConfigError(f"warmup is the share of steps that rise, from 0 to below 1, got {warmup}")
    return min(round(num_steps * warmup), num_steps - 1)
