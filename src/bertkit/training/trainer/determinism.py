"""The same bits every time, on a GPU at a price: some of its kernels add up in the order in which they get ready."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def is_repeatable(device: torch.device, *, deterministic: bool) -> bool:
    """Whether a run gives the same bits again, and resumes bit for bit: on a CPU always."""
    return deterministic or device.type == "cpu"


@contextmanager
def repeatable(*, enabled: bool) -> Iterator[None]:
    """Inside the block torch takes kernels that give the same bits every time, and refuses what has none."""
    if not enabled:
        yield
        return
    # Read by cuBLAS at its first product: with the workspaces it takes by itself its sums are not repeatable.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before, warned = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
