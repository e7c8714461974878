"""Where a GPU's time goes, and how often the host waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from pretrain_peers import Bertkit

#: Parts of the names of matrix products among kernels.
PRODUCTS = ("gemm", "cutlass", "nvjet", "xmma", "cublas")
COPIES = ("copy", "memcpy")
#: Kernels that are listed.
SHOWN = 12
STEPS = 3


def profiler(device: torch.device) -> profile:
    """Of what the host does, and a GPU; a context manager."""
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    return profile(activities=kinds)


def shares_of(found: profile) -> dict[str, Any]:
    """Calls that wait for the device, casts, shares of its time, and the kernels that take longest."""
    events = found.key_averages()
    # Kernels and copies, as torch's own table adds up: operators are given the times of theirs once more.
    spent = {
        event.key: float(event.self_device_time_total)
        for event in events
        if event.device_type != DeviceType.CPU and not event.is_user_annotation
    }
    total = sum(spent.values()) or 1.0

    def share(parts: tuple[str, ...]) -> float:
        return round(sum(us for name, us in spent.items() if any(part in name.lower() for part in parts)) / total, 3)

    longest = sorted(spent.items(), key=lambda pair: -pair[1])[:SHOWN]
    return {
        "waits": sum(event.count for event in events if "Synchronize" in event.key),
        "values_read": sum(event.count for event in events if event.key == "aten::_local_scalar_dense"),
        "casts": sum(event.count for event in events if event.key == "aten::_to_copy"),
        "share_of_products": share(PRODUCTS),
        "share_of_casts_and_copies": share(COPIES),
        "longest": {name[:80]: round(us / total, 3) for name, us in longest},
    }


def training_profile(system: Bertkit) -> dict[str, Any]:
    """:data:`STEPS` steps of pre-training, uncompiled. They are read once, at their end: that is one wait, or a few."""
    from pretrain_peers import WARM

    system.train(range(WARM + STEPS))
    found = profiler(system.job.device)

    def watched(number: int) -> None:
        if number == WARM:
            found.start()

    system.train(range(WARM + STEPS), watched)
    found.stop()
    return {"profile_of_steps": STEPS, **shares_of(found)}
