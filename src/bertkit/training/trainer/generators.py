"""The state of every random generator of a run, so that a resumed run draws the same numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

from bertkit.system.fork_locks import ForkSafeLock


class GeneratorValues(TypedDict):
    """The states of Python's and numpy's generators, as ``getstate`` and ``get_state`` return them, in lists."""

    python: tuple[int, list[int], float | None]
    numpy: tuple[str, list[int], int, int, float]


def seed_generators(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators (torch's of every device)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def capture_generators() -> tuple[dict[str, Tensor], GeneratorValues]:
    """The states of all generators: tensors, and values that JSON can hold."""
    tensors = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors |= {f"cuda.{index}": state for index, state in enumerate(torch.cuda.get_rng_state_all())}
    if torch.backends.mps.is_available():
        tensors["mps"] = torch.mps.get_rng_state()
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    numpy_state = (name, np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached))
    return tensors, {"python": (version, list(internal), gauss), "numpy": numpy_state}


def restore_generators(tensors: Mapping[str, Tensor], values: GeneratorValues) -> None:
    """Restore the states of :func:`capture_generators`; those of devices that are missing here are ignored."""
    torch.set_rng_state(tensors["torch"])
    for index in range(torch.cuda.device_count()):
        if (state := tensors.get(f"cuda.{index}")) is not None:
            torch.cuda.set_rng_state(state, index)
    if "mps" in tensors and torch.backends.mps.is_available():
        torch.mps.set_rng_state(tensors["mps"])
    version, internal, gauss = values["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = values["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))


#: Held while a block of :func:`seeded` has the generators, of which a process has one of each kind.
_lock = ForkSafeLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed every generator inside the block, then restore the states; blocks of several threads wait for each other."""
    with _lock:
        tensors, values = capture_generators()
        seed_generators(seed)
        try:
            yield
        finally:
            restore_generators(tensors, values)
