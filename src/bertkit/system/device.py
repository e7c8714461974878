"""The device a model runs on, by its name."""

from __future__ import annotations

import torch

from bertkit.errors import ConfigError


def find_device(device: str | torch.device | None) -> torch.device:
    """The device to compute on; None or ``"auto"`` takes the first GPU where there is one, else the CPU.

    Raises:
        ConfigError: no such device on this machine.
    """
    if device is None or device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise ConfigError(f"device {device!r} is unknown; use 'cpu', 'cuda', 'cuda:1' or 'auto'") from None
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise ConfigError(f"device {str(found)!r} is not there: this machine has {count} CUDA devices")
    if found.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device 'mps' is not there")
    return found
