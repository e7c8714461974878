"""Products of float32 matrices by oneDNN instead of MKL, where MKL leaves half of the processor unused.

MKL uses AVX-512 on Intel's processors only; on others it computes with AVX2. oneDNN's kernels, which torch uses for
linear layers with prepacked weights, go by what the processor can do. See ``docs/decisions/0150-training-on-a-cpu.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

from bertkit.system.processor import find_processor, own_products

#: Multiplications below which a call of MKL is as fast.
_FEWEST = 1 << 20
#: Rows that the product for a weight's gradient sums at a time: oneDNN is slow where it sums over thousands.
_ROWS = 768

_PlainProduct = Callable[[Tensor, Tensor, Tensor | None, str, list[Any], str], Tensor]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``torch.nn.functional.linear``, ``(..., in)`` to ``(..., out)``; the results differ by rounding only."""
    if not _gains(x, weight):
        return F.linear(x, weight, bias)
    out: Tensor = _Linear.apply(x, weight, bias)
    return out


def _gains(x: Tensor, weight: Tensor) -> bool:
    if torch.compiler.is_compiling() or torch.compiler.is_exporting() or _is_transformed():
        return False
    floats = x.dtype == weight.dtype == torch.float32 and x.device.type == weight.device.type == "cpu"
    plain = type(weight) in (Tensor, nn.Parameter) and not torch.is_autocast_enabled("cpu")
    return floats and plain and x.ndim > 1 and x.numel() * weight.shape[0] >= _FEWEST and _plain_product() is not None


def _is_transformed() -> bool:
    """Whether ``torch.func`` (``vmap``, ``jvp``, ...) or forward-mode differentiation is at work."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


@cache
def onednn() -> Any:
    """The namespace of torch's operations on oneDNN, of its earlier name or its later one; None in a torch without."""
    if not torch.backends.mkldnn.is_available():
        return None
    needed = ("_linear_pointwise", "_reorder_linear_weight")
    found = (each for each in (torch.ops.mkldnn, torch.ops.onednn) if all(hasattr(each, name) for name in needed))
    return next(found, None)


@cache
def _plain_product() -> _PlainProduct | None:
    """``x @ weight.T + bias`` by oneDNN, where MKL is not as good."""
    operations = onednn() if find_processor().is_wide_without_mkl and own_products() else None
    return None if operations is None else operations._linear_pointwise


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``(..., in)`` to ``(..., out)``, without a gradient."""
    product = _plain_product()
    assert product is not None, "the caller has looked"
    return product(x, weight, bias, "none", [], "none")


class _Linear(torch.autograd.Function):
    """A linear layer; its gradient has a gradient too."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _product(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            linear(grad, weight.t()) if for_x else None,
            _outer_sum(grad.flatten(0, -2), x.flatten(0, -2)) if for_weight else None,
            grad.flatten(0, -2).sum(dim=0) if for_bias else None,
        )


def _outer_sum(a_RM: Tensor, b_RN: Tensor) -> Tensor:
    """``a.T @ b``, ``(M, N)``."""
    if torch.is_grad_enabled():  # a gradient of the gradient is wanted
        return a_RM.t() @ b_RN
    if a_RM.shape[1] > b_RN.shape[1]:  # the first is transposed in memory
        return _outer_sum(b_RN, a_RM).t()
    first, *others = zip(a_RM.split(_ROWS), b_RN.split(_ROWS), strict=True)
    total = _product(first[0].t(), first[1].t())
    for a, b in others:
        total += _product(a.t(), b.t())
    return total
