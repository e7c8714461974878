"""What a pre-training step computes, and how fast a device is at best: nothing here needs transformers."""

from __future__ import annotations

import time
from typing import Literal

import torch

from bertkit.config.bert_config import BertConfig

Precision = Literal["fp32", "bf16"]


def flops_a_step(shape: BertConfig, lengths: list[int], num_steps: int, masked_share: float = 0.15) -> float:
    """Useful floating-point operations of a step, forward and backward: no padding, head at masked positions only."""
    d, f, v = shape.hidden_size, shape.intermediate_size, shape.vocab_size
    tokens = sum(lengths)
    layers = shape.num_hidden_layers * (
        tokens * 2 * (4 * d * d + 2 * d * f) + sum(length * length for length in lengths) * 4 * d
    )
    heads = masked_share * tokens * 2 * (d * d + d * v) + len(lengths) * 2 * d * (d + 2)
    return 3 * (layers + heads) / num_steps


def matmul_peak(device: torch.device, precision: Precision) -> float:
    """Floating-point operations per second of the fastest of several square matrix products."""
    size, repeats = (8192, 20) if device.type == "cuda" else (1024, 5)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(4):
        clock = Clock(device)
        clock.start()
        for _ in range(repeats):
            a @ b
        best = min(best, clock.stop())
    return 2 * size**3 * repeats / best


class Clock:
    """Seconds between two points at which the device has finished all work; 0 if it was not started."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.begun: float | None = None

    def start(self) -> None:
        """Start the clock."""
        self._wait()
        self.begun = time.perf_counter()

    def stop(self) -> float:
        """Seconds since :meth:`start`."""
        self._wait()
        return 0.0 if self.begun is None else time.perf_counter() - self.begun

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
