"""Copies of the weights in 16 bits, with which a GPU computes, while those that are trained stay float32.

``torch.autocast`` casts what goes into each product and keeps what comes out of each norm in float32: on a GPU a tenth
of a training step were such casts. Here everything between the word embeddings and the logits is in 16 bits; norms and
attention add up in float32 inside their kernels, and losses take float32 (:func:`bertkit.model.losses.in_fp32`).
Gradients of the copies are added to float32 gradients after each micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


@contextmanager
def half_weights(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """Inside the block the modules of ``model`` have copies of their float32 weights in ``dtype``.

    A forward pass and its backward pass belong into the same block: gradient checkpointing computes layers again.
    """
    places: dict[int, list[tuple[dict[str, Any], str]]] = {}
    weights: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None and weight.dtype == torch.float32:
                weights[id(weight)] = weight
                places.setdefault(id(weight), []).append((module._parameters, name))
    trained = {number: weight for number, weight in weights.items() if weight.requires_grad}
    copies: dict[int, Tensor] = dict(zip(trained, _Halves.apply(dtype, *trained.values()), strict=True))
    copies |= {number: weight.to(dtype) for number, weight in weights.items() if number not in trained}
    try:
        for number, copy in copies.items():
            for parameters, name in places[number]:
                parameters[name] = copy
        yield
    finally:
        for number, weight in weights.items():
            for parameters, name in places[number]:
                parameters[name] = weight


class _Halves(torch.autograd.Function):
    """All weights in another type, in one kernel; their gradients in float32, in another."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        copies = [torch.empty_like(weight, dtype=dtype) for weight in weights]
        torch._foreach_copy_(copies, list(weights))
        return tuple(copies)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        given = [grad for grad in grads if grad is not None]
        wide = [torch.empty_like(grad, dtype=torch.float32) for grad in given]
        if given:
            torch._foreach_copy_(wide, given)
        rest = iter(wide)
        return (None, *(None if grad is None else next(rest) for grad in grads))
