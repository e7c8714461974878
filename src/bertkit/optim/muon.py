"""Muon, an experiment: orthogonal updates for the encoder's matrices, AdamW for everything else.

Jordan et al. 2024 (Muon); Liu et al. 2025, section 2.2, for the decay and for the scale that lets both parts share one
learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from bertkit.errors import ConfigError
from bertkit.optim.groups import Group, GroupOptimizer, is_hidden_matrix, split_parts, with_rates

#: Coefficients of the odd polynomial ``a s + b s^3 + c s^5`` that is applied repeatedly to the singular values.
#: Chosen by Jordan et al. for the steepest slope at 0; the values end between about 0.7 and 1.2, not at exactly 1.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)

#: An orthogonal (r, c) matrix times this and ``sqrt(max(r, c))`` has the root mean square of a usual Adam update.
_ADAM_RMS = 0.2


def muon(
    groups: Iterable[Group],
    *,
    learning_rate: float,
    momentum: float = 0.95,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
) -> Muon:
    """:class:`Muon` over the groups of :func:`bertkit.optim.parameter_groups`, each split in two by name."""
    ready = [part for group in with_rates(groups, learning_rate) for part in _cut(group)]
    if not any(group["orthogonal"] for group in ready):
        raise ConfigError(
            "Muon updates the weight matrices of encoder layers (names with 'encoder.layer.N.'), and none "
            "is trainable; use adamw"
        )
    return Muon(ready, lr=learning_rate, momentum=momentum, betas=betas, eps=eps)


def _cut(group: Group) -> list[Group]:
    if len(group.get("names", ())) != len(group["params"]):
        raise ConfigError(
            "Muon selects parameters by name: each group needs 'names', one per parameter; use parameter_groups()"
        )
    pairs = list(zip(group["names"], group["params"], strict=True))
    parts = []
    for orthogonal in (True, False):
        chosen = [(name, p) for name, p in pairs if is_hidden_matrix(name, p) == orthogonal]
        if chosen:
            names, params = [name for name, _ in chosen], [p for _, p in chosen]
            parts.append({**group, "names": names, "params": params, "orthogonal": orthogonal})
    return parts


class Muon(GroupOptimizer):
    """Orthogonalized momentum for groups with ``orthogonal``, AdamW for the others; made by :func:`muon`.

    Hidden matrix ``W`` of shape ``(r, c)``: ``B = momentum B + (1 - momentum) G``;
    ``O = orthogonalize((1 - momentum) G + momentum B)``; ``W -= lr (0.2 sqrt(max(r, c)) O + decay W)``, decay
    first. Where query, key and value share one tensor, each is orthogonalized separately.

    Deviation from Jordan et al. 2024: the decay, and the scale ``0.2 sqrt(max(r, c))`` in place of
    ``sqrt(max(1, r / c))``, are those of Liu et al. 2025, so that one learning rate suits both kinds of groups.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        if not 0 <= momentum < 1:
            raise ConfigError(f"momentum must be from 0 to below 1, got {momentum}")
        super().__init__(params, lr, betas, eps, weight_decay, momentum=momentum, orthogonal=False)

    def _update(self, params: list[Tensor], grads: list[Tensor], parts: list[int], group: Group) -> None:
        rate = group["lr"]
        if group["orthogonal"]:
            weights = split_parts(params, parts)
            means, momentum = self._running("momentum", params), group["momentum"]
            torch._foreach_lerp_(means, grads, 1 - momentum)
            # Nesterov: the running mean, moved once more towards the gradient.
            ahead = list(torch._foreach_lerp(grads, means, momentum))
            updates = orthogonalize(split_parts(ahead, parts))
            torch._foreach_mul_(updates, [_ADAM_RMS * math.sqrt(max(weight.shape)) for weight in weights])
        else:
            weights = params
            updates = self._adam_directions(params, grads, group["betas"], group["eps"])
        if group["weight_decay"]:
            torch._foreach_mul_(params, 1 - rate * group["weight_decay"])
        torch._foreach_add_(weights, updates, alpha=-rate)


def orthogonalize(matrices: Sequence[Tensor], *, steps: int = 5, eps: float = 1e-7) -> list[Tensor]:
    """Set the singular values of each matrix ``(r, c)`` to about 1: ``U S V^T`` becomes nearly ``U V^T``.

    Newton-Schulz iteration (Jordan et al. 2024), which needs only matrix products. They run in bf16 on a GPU and in the
    matrix's own type elsewhere; matrices of the same shape run together. Singular values below about 1e-3 of the
    Frobenius norm do not reach 1.
    """
    a, b, c = NEWTON_SCHULZ
    by_shape: dict[tuple[int, int], list[int]] = {}
    for number, matrix in enumerate(matrices):
        by_shape.setdefault((min(matrix.shape), max(matrix.shape)), []).append(number)
    found: dict[int, Tensor] = {}
    for numbers in by_shape.values():
        # Wide matrices, so that X X^T has the shorter side.
        x = torch.stack([m if m.shape[0] <= m.shape[1] else m.mT for m in (matrices[number] for number in numbers)])
        if x.is_cuda:
            x = x.bfloat16()
        x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
        for _ in range(steps):
            gram = x @ x.mT
            x = a * x + (b * gram + c * (gram @ gram)) @ x
        for number, wide in zip(numbers, x.unbind(), strict=True):
            matrix = matrices[number]
            found[number] = (wide if matrix.shape == wide.shape else wide.mT).to(matrix.dtype)
    return [found[number] for number in range(len(matrices))]
