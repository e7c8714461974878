"""Models that are open in this process: one for each set of settings, however many tasks or batches come."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from bertkit.bulk.answers import Answers
from bertkit.config.config_file import checkpoint_folder
from bertkit.engine.native.library import VARIANT_SWITCH, native_library
from bertkit.errors import ConfigError
from bertkit.inference.protocol import model_hash
from bertkit.system.atomic_files import sha256_file
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path

#: Models that one process keeps.
MOST = 4
_lock = ForkSafeLock()
_open: dict[object, Answers] = {}
_hashes: dict[tuple[tuple[str, int, int], ...], str] = {}


def opened(key: object, make: Callable[[], Answers]) -> Answers:
    """The model of a key, opened when it is first asked for."""
    with _lock:
        if key not in _open:
            while len(_open) >= MOST:
                del _open[next(iter(_open))]
            _open[key] = make()
        return _open[key]


def shared_name(model: str | Path) -> str:
    """The name by which other processes find a model: of one that is here its absolute path, else as it is."""
    path = user_path(model)
    return str(path.absolute()) if path.exists() else str(model)


def fingerprint(model: str | Path) -> str:
    """SHA-256 of all that a model's answers depend on: weights, config, decision, tokenizer, settings of its run."""
    path = resolve(model)
    folder = checkpoint_folder(path)
    patterns = ("*.json", "vocab*", "merges*", "*.model", "*/config.json", "heads/*/*")
    found = {file for pattern in patterns for file in folder.glob(pattern) if file.is_file()}
    named = sorted(found, key=lambda file: file.relative_to(folder).as_posix())
    stats = tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(folder.glob("*")))
    with _lock:
        if stats not in _hashes:
            parts = [model_hash(path), *map(sha256_file, named)]
            _hashes[stats] = hashlib.sha256("".join(parts).encode()).hexdigest()
        return _hashes[stats]


def use_variant(name: str | None) -> None:
    """Have the C library compute with a variant; ConfigError if it already does with another, or cannot."""
    if name is None:
        return
    os.environ[VARIANT_SWITCH] = name
    library = native_library()
    if library is not None and library.name != name:
        raise ConfigError(
            f"this process computes with variant {library.name} already, and cpu={name!r} was asked for: set "
            f"{VARIANT_SWITCH}={name} in the environment of the workers"
        )


def variant() -> str:
    """The variant of the C library that computes here; ``"none"`` without the library."""
    library = native_library()
    return "none" if library is None else library.name
