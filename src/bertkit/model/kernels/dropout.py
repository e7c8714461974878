"""Dropout with cheap random bits.

On a CPU, ``torch.nn.functional.dropout`` takes about 8 ns per value to draw Bernoulli numbers, a fifth of a training
step of a small encoder. Here 16 random bits per value come from NumPy's SFC64, seeded from torch's generator at every
call, so that ``torch.manual_seed`` and a saved generator state determine every mask.
See ``docs/decisions/0003-dropout-bits.md``.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

_LEVELS = 1 << 16


def keep_mask(like: Tensor, p: float) -> Tensor:
    """1 with probability ``1 - p``, else 0: a tensor with the shape and type of ``like``, independent values.

    ``p`` is rounded to a multiple of 2**-16 on the CPU (0.1 becomes 0.100006).
    """
    if like.device.type != "cpu":
        return torch.empty_like(like).bernoulli_(1.0 - p)
    seed = int(torch.randint(2**63 - 1, ()).item())
    words = np.random.SFC64(seed).random_raw(-(-like.numel() // 4))
    bits = torch.from_numpy(words.view(np.int16)[: like.numel()]).view(like.shape)
    threshold = round(p * _LEVELS) - _LEVELS // 2
    return torch.ge(bits, threshold, out=torch.empty(like.shape, dtype=like.dtype))


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero each value of ``x`` with probability ``p`` and scale the others by ``1 / (1 - p)``; ``p`` = 0: ``x``."""
    return x if p == 0.0 else x * keep_mask(x, p).mul_(1.0 / (1.0 - p))


def add_dropout(residual: Tensor, x: Tensor, p: float) -> Tensor:
    """``residual + dropout(x, p)`` in one pass over memory."""
    return residual + x if p == 0.0 else torch.addcmul(residual, x, keep_mask(x, p), value=1.0 / (1.0 - p))


class Dropout(nn.Module):
    """Dropout in training mode, nothing in eval mode."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def rate(self) -> float:
        """``p`` in training mode, else 0: the only line that decides it."""
        return self.p if self.training else 0.0

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.rate())

    def extra_repr(self) -> str:
        return f"p={self.p}"
