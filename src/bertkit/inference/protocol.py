"""What computed a number: the model's weights and the software. The machine: :func:`bertkit.system.device.hardware`."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bertkit.checkpoints.huggingface import find_weights, is_int8
from bertkit.checkpoints.sentence_folder import step_files
from bertkit.checkpoints.static_folder import static_folder
from bertkit.checkpoints.weight_files import INT8_WEIGHTS
from bertkit.config.config_file import checkpoint_folder
from bertkit.engine.export_folder import exported_files, is_export
from bertkit.system.atomic_files import sha256_file
from bertkit.system.json_files import printable
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path


def model_hash(name_or_path: str | Path) -> str:
    """SHA-256 of a checkpoint's weights; of several files (shards, or a graph and its weights), of their hashes."""
    path = resolve(name_or_path)
    hashes = [sha256_file(file) for file in _weight_files(path)]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def short_name(name_or_path: str | Path) -> str:
    """A model by its name on the Hub, or the last two parts of its path, which do not name its owner's folders."""
    local = user_path(name_or_path)
    return printable("/".join(local.resolve().parts[-2:]).removeprefix("/") if local.exists() else name_or_path)


def _weight_files(path: Path) -> Sequence[Path]:
    if (static := static_folder(path)) is not None:
        return static.files
    if is_export(path):
        return exported_files(path)
    folder = checkpoint_folder(path)
    encoder = (folder / INT8_WEIGHTS,) if is_int8(folder) else find_weights(path).files
    return (*encoder, *step_files(folder))


def versions() -> dict[str, str]:
    """Versions of the software that computes the numbers."""
    found = {"python": platform.python_version()}
    for package in ("bertkit", "torch", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found
