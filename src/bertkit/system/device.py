"""The device a model runs on, by its name, and what is said of it. Imports torch only when called."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Mapping
from functools import cache
from glob import glob
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from bertkit.errors import ConfigError, counted

if TYPE_CHECKING:
    import torch

#: What every function and class takes for ``device``; see :func:`find_device`.
Device: TypeAlias = "str | int | torch.device | None"


def check_device(device: Device) -> None:
    """Raise ConfigError if :func:`find_device` would, before time is spent on anything else; also without torch."""
    if str(device) in ("None", "auto", "cpu", "-1"):
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


#: Of which Linux has one or more where there is an NVIDIA GPU: of the driver, of containers, of WSL, of Jetson boards.
GPU_FILES = ("/proc/driver/nvidia/gpus/*", "/dev/nvidia[0-9]*", "/dev/dxg", "/dev/nvhost-gpu", "/dev/nvgpu*")


def is_cpu(device: Device) -> bool:
    """Whether :func:`find_device` gives the CPU, without importing torch where there can be no NVIDIA GPU."""
    name = str(device)
    if name not in ("None", "auto"):
        return name in ("cpu", "-1")
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):  # it hides all
        return True
    return not (_may_have_gpu() and find_spec("torch") and find_device(None).type != "cpu")


@cache
def _may_have_gpu() -> bool:
    """Whether the system has the library of NVIDIA's driver and, on Linux, a file of a GPU.

    The library is not asked for devices: a process that has asked cannot fork.
    """
    if sys.platform == "linux" and not any(map(glob, GPU_FILES)):
        return False
    try:
        ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return False
    return True


def find_device(device: Device, default: str = "auto") -> torch.device:
    """The device to compute on; a ConfigError if there is none of that name, or none on this machine.

    ``"cpu"``, ``"cuda"``, ``"cuda:1"`` ..., or a ``torch.device``; the number of a GPU, or -1 for the CPU, also as
    text; ``"auto"`` for the first GPU where there is one, else the CPU; None for ``default``.
    """
    import torch

    name = default if device is None else str(device)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "-1" or (name.isascii() and name.isdecimal()):
        name = "cpu" if name == "-1" else f"cuda:{name}"
    try:
        found = torch.device(name)
    except RuntimeError:
        found = torch.device("meta")
    if found.type not in ("cpu", "cuda", "mps"):
        raise ConfigError(
            f"unknown device {device!r}; use 'cpu', 'cuda', 'cuda:1', 'auto', or the number of a GPU (-1: the CPU)"
        )
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        gpus = counted(torch.cuda.device_count(), "CUDA device")
        raise ConfigError(f"no device {str(found)!r}: this machine has {gpus}; use 'cpu', or leave it out")
    if found.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("no device 'mps' on this machine; use 'cpu', or leave it out")
    return found


def runs_ahead(device: torch.device) -> bool:
    """Whether the host goes on while the device computes, and loses time if it waits: a GPU under CUDA.

    ``meta`` computes nothing; the tests take it for a GPU.
    """
    return device.type in ("cuda", "meta")


def device_of_map(spread: object) -> str | None:
    """The one device that a ``device_map`` stands for; None: a GPU where there is one.

    A model is never spread over several devices: a ConfigError for a mapping that names more than one.
    """
    if isinstance(spread, Mapping):
        places = set(map(str, spread.values()))
        if len(places) != 1:
            raise ConfigError(f"device_map names {len(places)} devices; a model is kept on one: write device='cuda:0'")
        spread = places.pop()
    return None if spread in (None, "auto", "balanced", "balanced_low_0", "sequential") else str(spread)


def hardware(device: Device) -> dict[str, Any]:
    """Where it ran, None: the CPU. With another number of threads sums are taken in another order."""
    import torch

    kind = find_device(device, "cpu")
    name = torch.cuda.get_device_name(kind) if kind.type == "cuda" else platform.machine()
    return {"device": str(kind), "name": name, "num_threads": torch.get_num_threads(), "num_cpus": os.cpu_count()}
