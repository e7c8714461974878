"""LAMB, for batches so large that one rate for all layers no longer works (You et al. 2020)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from bertkit.optim.groups import GroupOptimizer, split_parts, with_rates


def lamb(
    groups: Iterable[dict[str, Any]],
    *,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    adapt_vectors: bool = False,
) -> Lamb:
    """:class:`Lamb` over the groups of :func:`bertkit.optim.parameter_groups`.

    Args:
        groups: parameter groups; ``lr_scale`` in a group multiplies its learning rate.
        learning_rate: peak rate. Not comparable with Adam's: the paper has 5e-3 at batch 32,768, and grows it with the
            square root of the batch size (6.25e-4 at 512).
        betas: decay of the running mean of the gradient and of its square.
        eps: added to the root of the mean square.
        adapt_vectors: see :class:`Lamb`.

    Raises:
        ConfigError: a setting out of bounds.
    """
    return Lamb(with_rates(groups, learning_rate), lr=learning_rate, betas=betas, eps=eps, adapt_vectors=adapt_vectors)


class Lamb(GroupOptimizer):
    """Adam whose update of each weight is as long as ``lr`` times the weight itself (algorithm 2 of the paper).

    ``u = m' / (sqrt(v') + eps) + decay w``, with bias-corrected ``m'`` and ``v'``; ``w -= lr (|w| / |u|) u``. The
    scaling function of the paper is the identity. If ``|w|`` or ``|u|`` is 0 the ratio is 1, so a weight that
    starts at 0 can change.

    Weights are those of the paper: where query, key and value share one tensor (recognised by ``names`` in the group),
    each has its own ratio.

    Deviations from algorithm 2, both as in the authors' code: parameters with one axis (biases, norms) have ratio 1
    unless ``adapt_vectors``, and the gradient is clipped to a global norm of 1, which the training loop does.

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
        *,
        adapt_vectors: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, adapt_vectors=adapt_vectors)

    def _update(self, params: list[Tensor], grads: list[Tensor], parts: list[int], group: dict[str, Any]) -> None:
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
