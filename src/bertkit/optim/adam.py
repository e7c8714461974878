"""Adam in three forms: AdamW from torch, the update that was published with BERT, and LAMB for very large batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from bertkit.errors import ConfigError
from bertkit.optim.groups import (
    EagerOptimizer,
    Group,
    GroupOptimizer,
    check_adam_settings,
    eager,
    split_parts,
    with_rates,
)

#: Values of a tensor that :class:`AdamWeightDecay` updates at a time on a CPU; about ten such buffers are alive.
_CACHE_NUMBERS = 1 << 16


def adamw(
    groups: Iterable[Group],
    *,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    bias_correction: bool = True,
) -> Optimizer:
    """The optimizer of both recipes; ``eps`` is 1e-6 as in the original code, and 1e-8 in torch."""
    check_adam_settings(learning_rate, betas, eps)
    ready = with_rates(groups, learning_rate)
    if not bias_correction:
        return AdamWeightDecay(ready, lr=learning_rate, betas=betas, eps=eps)
    # fused: one pass over parameter, gradient and both moments. On CPU the update is bound by memory, and for a small
    # encoder, whose word embeddings are half of all parameters, it is a visible share of a step.
    return AdamW(ready, lr=learning_rate, betas=betas, eps=eps, weight_decay=0.01, fused=True)


class AdamW(EagerOptimizer, torch.optim.AdamW):
    """AdamW with the arguments and defaults of ``transformers.AdamW``, which older tutorials import.

    The update is torch's: ``weight_decay`` (default 0) shrinks a weight before its update, not after; ``fused`` as in
    torch.

    Raises:
        ConfigError: ``correct_bias=False``, or a setting out of bounds.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        correct_bias: bool = True,
        *,
        fused: bool | None = None,
    ) -> None:
        if not correct_bias:
            raise ConfigError("AdamW corrects the bias; for correct_bias=False use bertkit.optim.AdamWeightDecay")
        check_adam_settings(lr, betas, eps, weight_decay)
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=fused)

    step = torch.no_grad()(eager(torch.optim.AdamW.step))


class AdamWeightDecay(GroupOptimizer):
    """Adam as in the code published with the paper: no bias correction, decay added to the update.

    ``m = b1 m + (1 - b1) g``; ``v = b2 v + (1 - b2) g^2``; ``p -= lr (m / (sqrt(v) + eps) + decay p)``.
    Every product and sum is rounded separately, as in that code, so the result is the same to the last bit; this takes
    more passes than fused operations would.

    Deviation from Kingma & Ba 2015: ``m`` and ``v`` start at 0 and are not divided by ``1 - b^t``, so with the usual
    betas the first update is ``(1 - b1) / sqrt(1 - b2)``, about 3.2, times as large as the corrected one. Zhang et al.
    2021 name this as one cause of failed fine-tuning runs; it is here to reproduce the results of 2018.
    """

    def _update(self, params: list[Tensor], grads: list[Tensor], parts: list[int], group: Group) -> None:
        means, squares = self._running("exp_avg", params), self._running("exp_avg_sq", params)
        for some_params, some_grads, some_means, some_squares in _cache_sized(params, grads, means, squares):
            _published_update(some_params, some_grads, some_means, some_squares, group)


def _published_update(
    params: list[Tensor], grads: list[Tensor], means: list[Tensor], squares: list[Tensor], group: Group
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
    """Runs that fit a CPU's cache, as the update goes over its tensors 14 times; on a GPU all at once."""
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


def lamb(
    groups: Iterable[Group],
    *,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    adapt_vectors: bool = False,
) -> Lamb:
    """:class:`Lamb` over the groups of :func:`bertkit.optim.parameter_groups`.

    Its rate is not comparable with Adam's: the paper has 5e-3 at batch 32,768, and grows it with the square root of the
    batch size (6.25e-4 at 512).
    """
    return Lamb(with_rates(groups, learning_rate), lr=learning_rate, betas=betas, eps=eps, adapt_vectors=adapt_vectors)


class Lamb(GroupOptimizer):
    """Adam whose update of each weight is as long as ``lr`` times the weight itself (algorithm 2 of the paper).

    ``u = m' / (sqrt(v') + eps) + decay w``, with bias-corrected ``m'`` and ``v'``; ``w -= lr (|w| / |u|) u``. The
    scaling function of the paper is the identity. If ``|w|`` or ``|u|`` is 0 the ratio is 1, so a weight that starts at
    0 can change. Where query, key and value share one tensor, each has its own ratio.

    Deviations from algorithm 2, both as in the authors' code: parameters with one axis (biases, norms) have ratio 1
    unless ``adapt_vectors``, and the gradient is clipped to a global norm of 1, which the training loop does.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        adapt_vectors: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, adapt_vectors=adapt_vectors)

    def _update(self, params: list[Tensor], grads: list[Tensor], parts: list[int], group: Group) -> None:
        updates = self._adam_directions(params, grads, group["betas"], group["eps"])
        if group["weight_decay"]:
            torch._foreach_add_(updates, params, alpha=group["weight_decay"])
        adapted = [i for i, p in enumerate(params) if p.ndim >= 2 or group["adapt_vectors"]]
        if adapted:
            counts = [parts[i] for i in adapted]
            _scale_to_weights(
                split_parts([updates[i] for i in adapted], counts), split_parts([params[i] for i in adapted], counts)
            )
        torch._foreach_add_(params, updates, alpha=-group["lr"])


def _scale_to_weights(updates: list[Tensor], weights: list[Tensor]) -> None:
    """Scale each update to the norm of its weight, in place; unchanged if either is 0."""
    update_norms = torch.stack(list(torch._foreach_norm(updates)))
    weight_norms = torch.stack(list(torch._foreach_norm(weights)))
    usable = (update_norms > 0) & (weight_norms > 0)
    ratios = torch.where(usable, weight_norms / update_norms, 1.0)
    torch._foreach_mul_(updates, list(ratios.unbind()))
