"""The features of frozen encoders on disk, so that a second run over the same texts computes nothing.

One safetensors file per encoder and text set, named by a hash of both. The files used last are kept, up to
:data:`CACHE_BYTES`; ``bertkit doctor --clear-cache`` deletes all of them.
"""

from __future__ import annotations

import os
from pathlib import Path

from bertkit.checkpoints.safetensors_format import read_floats, read_header, write_arrays
from bertkit.errors import CheckpointError, ConfigError, ResourceError
from bertkit.ragged import Floats
from bertkit.system.console import say
from bertkit.system.json_files import printable
from bertkit.system.paths import cache_root

CACHE_BYTES = 2_000_000_000


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/bertkit/features``, by default below ``~/.cache``."""
    return cache_root() / "features"


def describe_cache() -> dict[str, str | int]:
    """Where the cache is, and how many files and bytes it has."""
    sizes = [file.stat().st_size for file in cache_folder().glob("*.safetensors")]
    return {"folder": printable(cache_folder()), "files": len(sizes), "bytes": sum(sizes)}


def clear_cache() -> None:
    """Delete all cached features; later runs compute them again."""
    for file in cache_folder().glob("*.safetensors"):
        file.unlink(missing_ok=True)


def read_features(file: Path, shape: tuple[int, int]) -> Floats | None:
    """Cached vectors of this shape; None if there are none, or the file is damaged (which is reported)."""
    if not file.exists():
        return None
    try:
        vectors = read_floats(read_header(file)["vectors"])
    except (CheckpointError, KeyError) as error:
        say(f"the feature cache {file} cannot be used and is computed again: {error}")
        return None
    if vectors.shape != shape:
        return None
    os.utime(file)  # the files used least recently are deleted first
    return vectors


def write_features(file: Path, vectors: Floats) -> None:
    """Keep vectors for the next run. A cache that cannot be written costs time, never a result."""
    try:
        write_arrays(file, {"vectors": vectors})
    except (OSError, ConfigError, ResourceError) as error:
        say(f"the features are not cached: {error}")
        return
    kept = 0
    for old in sorted(file.parent.glob("*.safetensors"), key=lambda path: path.stat().st_mtime, reverse=True):
        kept += old.stat().st_size
        if kept > CACHE_BYTES and old != file:
            old.unlink(missing_ok=True)
