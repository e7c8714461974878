"""The published update of BERT's optimizer, one element at a time."""

from __future__ import annotations

import numpy as np

F = np.float32


def published_step(
    x: float, grad: float, m: float, v: float, *, lr: float, decay: float, b1: float = 0.9, b2: float = 0.999
) -> tuple[np.float32, np.float32, np.float32]:
    """One element, each operation rounded to float32; constants are taken in double and rounded once, as there."""
    new_m = F(F(b1) * F(m)) + F(F(1.0 - b1) * F(grad))
    new_v = F(F(b2) * F(v)) + F(F(1.0 - b2) * F(F(grad) * F(grad)))
    update = F(new_m) / F(np.sqrt(F(new_v)) + F(1e-6))
    if decay:
        update = F(update) + F(F(decay) * F(x))
    return F(x) - F(F(lr) * F(update)), F(new_m), F(new_v)
