"""Adam in two forms: bias-corrected AdamW from torch, and the update that was published with BERT."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from bertkit.errors import ConfigError
from bertkit.optim.groups import GroupOptimizer, check_adam_settings, with_rates

#: Values of a tensor that :class:`AdamWeightDecay` updates at a time on a CPU; about ten such buffers are alive.
_CACHE_NUMBERS = 1 << 16


def adamw(
    groups: Iterable[dict[str, Any]],
    *,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    bias_correction: bool = True,
) -> Optimizer:
    """The optimizer of both recipes, over the groups of :func:`bertkit.optim.parameter_groups`.

    Args:
        groups: parameter groups; ``lr_scale`` in a group multiplies its learning rate.
        learning_rate: peak rate.
        betas: decay of the running mean of the gradient and of its square.
        eps: added to the root of the mean square (1e-6 as in the original code; torch's default is 1e-8).
        bias_correction: False gives :class:`AdamWeightDecay`, the original's update.

    Raises:
        ConfigError: a setting out of bounds.
    """
    check_adam_settings(learning_rate, betas, eps)
    ready = with_rates(groups, learning_rate)
    if not bias_correction:
        return AdamWeightDecay(ready, lr=learning_rate, betas=betas, eps=eps)
    # fused: one pass over parameter, gradient and both moments. On CPU the update is bound by memory, and for a small
    # encoder, whose word embeddings are half of all parameters, it is a visible share of a step.
    return torch.optim.AdamW(ready, lr=learning_rate, betas=betas, eps=eps, fused=True)


class AdamW(torch.optim.AdamW):
    """AdamW with the arguments and defaults of ``transformers.AdamW``, which older tutorials import.

    The update is torch's: ``weight_decay`` (default 0) shrinks a weight before its update, not after.

    Raises:
        ConfigError: ``correct_bias=False``, or a setting out of bounds.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
    ) -> None:
        if not correct_bias:
            raise ConfigError("AdamW corrects the bias; for correct_bias=False use bertkit.optim.AdamWeightDecay")
        check_adam_settings(lr, betas, eps)
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


class AdamWeightDecay(GroupOptimizer):
    """Adam as in the code published with the paper: no bias correction, decay added to the update.

    ``m = b1 m + (1 - b1) g``; ``v = b2 v + (1 - b2) g^2``; ``p -= lr (m / (sqrt(v) + eps) + decay p)``.
    Every product and sum is rounded separately, as in that code, so the result is the same to the last bit; this takes
    more passes than fused operations would.

    Deviation from Kingma & Ba 2015: ``m`` and ``v`` start at 0 and are not divided by ``1 - b^t``, so with the usual
    betas the first update is ``(1 - b1) / sqrt(1 - b2)``, about 3.2 times, larger than the corrected one. Zhang et al.
    2021 name this as one cause of failed fine-tuning runs; it is here to reproduce the results of 2018.
    """

    def _update(self, params: list[Tensor], grads: list[Tensor], parts: list[int], group: dict[str, Any]) -> None:
        means, squares = self._running("exp_avg", params), self._running("exp_avg_sq", params)
        for some_params, some_grads, some_means, some_squares in _cache_sized(params, grads, means, squares):
            _published_update(some_params, some_grads, some_means, some_squares, group)


def _published_update(
    params: list[Tensor], grads: list[Tensor], means: list[Tensor], squares: list[Tensor], group: dict[str, Any]
) -> None:
    """Update all but ``grads`` in place, with one rounding per operation."""
    b1, b2 = group["betas"]
    torch._foreach_mul_(means, b1)
    torch._foreach_add_(means, list(torch._foreach_mul(grads, 1 - b1)))
    new_squares = list(torch._foreach_mul(grads, grads))
    torch._foreach_mul_(new_squares, 1 - b2)
    torch._foreach_mul_(squares, b2)
    torch._foreach_add_(squares, new_squares)
    roots = [_exact_root(square) for square in squares]
    torch._foreach_add_(roots, group["eps"])
    updates = list(torch._foreach_div(means, roots))
    if group["weight_decay"]:
        torch._foreach_add_(updates, list(torch._foreach_mul(params, group["weight_decay"])))
    torch._foreach_mul_(updates, group["lr"])
    torch._foreach_sub_(params, updates)


def _cache_sized(*columns: list[Tensor]) -> Iterator[list[list[Tensor]]]:
    """The same columns of tensors in runs that fit a CPU's cache; all at once on a GPU, where launches cost more.

    The update reads and writes its tensors 14 times and would otherwise be limited by memory bandwidth.
    """
    if columns[0][0].device.type != "cpu":
        yield list(columns)
        return
    for row in zip(*columns, strict=True):
        if all(tensor.is_contiguous() for tensor in row):
            pieces = [tensor.view(-1).split(_CACHE_NUMBERS) for tensor in row]
            yield from ([[piece] for piece in piece_row] for piece_row in zip(*pieces, strict=True))
        else:
            yield [[tensor] for tensor in row]


def _exact_root(square: Tensor) -> Tensor:
    """The correctly rounded square root; torch's float32 kernel for CPUs is off by one bit for 1 in 6 numbers.

    Computed in float64: the root of a 24-bit number is never closer than 2**-50 to a rounding boundary, and the float64
    root is more accurate than that.
    """
    if square.dtype == torch.float32 and square.device.type == "cpu":
        return square.double().sqrt_().float()
    return square.sqrt()
