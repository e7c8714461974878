"""The device a model runs on, by its name, and what is said of it. Imports torch only when called."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

from bertkit.errors import ConfigError, counted

if TYPE_CHECKING:
    import torch


def check_device(device: str | int | torch.device | None) -> None:
    """Raise ConfigError if :func:`find_device` would, before time is spent on anything else; also without torch."""
    if device in (None, "auto", "cpu", -1):
        return
    try:
        find_device(device)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ConfigError(
            f"no device {str(device)!r}: without torch there are exported models only, which run on the CPU; use "
            "'cpu', or leave it out"
        ) from None


def find_device(device: str | int | torch.device | None) -> torch.device:
    """The device to compute on.

    Args:
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` ...; the number of a GPU, or -1 for the CPU; None or ``"auto"`` for
            the first GPU where there is one, else the CPU.

    Raises:
        ConfigError: this machine has no such device.
    """
    import torch

    if device is None or device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if isinstance(device, int) and not isinstance(device, bool):
        device = "cpu" if device < 0 else f"cuda:{device}"
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise ConfigError(f"unknown device {device!r}; use 'cpu', 'cuda', 'cuda:1', 'auto' or a GPU's number") from None
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        gpus = counted(torch.cuda.device_count(), "CUDA device")
        raise ConfigError(f"no device {str(found)!r}: this machine has {gpus}; use 'cpu', or leave it out")
    if found.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("no device 'mps' on this machine; use 'cpu', or leave it out")
    return found


def hardware(device: torch.device | str | None) -> dict[str, Any]:
    """Where it ran. Threads matter for exact repetition: sums are taken in another order with another number."""
    import torch

    kind = torch.device(device or "cpu")
    name = torch.cuda.get_device_name(kind) if kind.type == "cuda" else platform.machine()
    return {"device": str(kind), "name": name, "num_threads": torch.get_num_threads(), "num_cpus": os.cpu_count()}
