"""``set_seed``, as ``transformers`` has it."""

from __future__ import annotations

import random

import numpy as np
import torch


def set_seed(seed: int, deterministic: bool = False) -> None:
    """Seed the generators of Python, numpy and torch, on all devices.

    deterministic: True also makes torch choose algorithms that give the same result each time, or fail.

    Training here does not read these generators: ``finetune(..., seed=)`` and ``BertClassifier(seed=)`` seed it.
    """
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if deterministic:
        torch.use_deterministic_algorithms(True)
