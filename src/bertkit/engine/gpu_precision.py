"""The arithmetic of inference on a GPU where none is asked for: what its products are fast in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bertkit.system.fork_locks import ForkSafeLock

#: The first compute capability of NVIDIA GPUs with fast products in a type, the best first; TF32 came with bfloat16.
FAST_TYPES = (((8, 0), torch.bfloat16), ((7, 0), torch.float16))
HAS_TF32 = (8, 0)
_lock = ForkSafeLock()
#: ``exact`` of the computations that run, and the setting before the first of them.
_inside: list[bool] = []
_before = False


def half_type_of(capability: tuple[int, int] | None) -> torch.dtype | None:
    """What ``precision="auto"`` multiplies in; None: float32, also where there is no NVIDIA GPU (capability None).

    bfloat16 has the range of float32, so that nothing overflows (decision 0326).
    """
    if capability is None:
        return None
    return next((dtype for least, dtype in FAST_TYPES if capability >= least), None)


def half_type(place: torch.device) -> torch.dtype | None:
    """The same of a device."""
    return half_type_of(_capability(place))


@contextmanager
def float32_products(place: torch.device, *, exact: bool) -> Iterator[None]:
    """Inside, a GPU multiplies float32 numbers as they are (``exact``), or in TF32 where it has it.

    The setting is that of the process: while threads disagree, it is exact.
    """
    global _before
    capability = _capability(place)
    if capability is None or capability < HAS_TF32:
        yield
        return
    matmul = torch.backends.cuda.matmul
    with _lock:
        if not _inside:
            _before = matmul.allow_tf32
        _inside.append(exact)
        matmul.allow_tf32 = not any(_inside)
    try:
        yield
    finally:
        with _lock:
            _inside.remove(exact)
            matmul.allow_tf32 = not any(_inside) if _inside else _before


def _capability(place: torch.device) -> tuple[int, int] | None:
    if place.type != "cuda" or torch.version.cuda is None or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_capability(place)
