"""What computed a number: the model's weights, the software, the machine."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from bertkit.checkpoints.huggingface import find_weights
from bertkit.system.atomic_files import sha256_file
from bertkit.system.model_sources import resolve


def model_hash(name_or_path: str | Path, revision: str | None = None) -> str:
    """SHA-256 of a checkpoint's weights; of a sharded one, of its shards' hashes in the order of their names."""
    files = find_weights(resolve(name_or_path, revision=revision)).files
    hashes = [sha256_file(file) for file in files]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def versions() -> dict[str, str]:
    """Versions of the software that computes the numbers."""
    found = {"python": platform.python_version()}
    for package in ("bertkit", "torch", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def hardware(device: torch.device | str | None) -> dict[str, Any]:
    """Where it ran. Threads matter for exact repetition: sums are taken in another order with another number."""
    kind = torch.device(device or "cpu")
    name = torch.cuda.get_device_name(kind) if kind.type == "cuda" else platform.machine()
    return {"device": str(kind), "name": name, "num_threads": torch.get_num_threads(), "num_cpus": os.cpu_count()}
