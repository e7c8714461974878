"""How a sentence-transformers checkpoint pools its token vectors: ``1_Pooling/config.json``. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from bertkit.errors import CheckpointError
from bertkit.system.untrusted_files import read_regular, strict_json

Pooling = Literal["cls", "mean", "max"]

_FILE = Path("1_Pooling", "config.json")
_MAX_BYTES = 100_000
_MODES: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}


def saved_pooling(folder: Path) -> Pooling | None:
    """The pooling that the folder asks for; None where it does not say, or asks for one that bertkit does not have.

    Raises:
        CheckpointError: the file cannot be read; names it.
    """
    file = folder / _FILE
    if not file.exists():
        return None
    try:
        values = strict_json(read_regular(file, max_bytes=_MAX_BYTES))
    except ValueError as error:
        raise CheckpointError(f"{file} is not a readable JSON file: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{file} holds a {type(values).__name__}, expected an object of settings")
    chosen = [key for key, value in values.items() if key.startswith("pooling_mode_") and value is True]
    if not chosen and values.get("pooling_mode") in _MODES.values():  # the short form of newer releases
        return next(mode for mode in _MODES.values() if mode == values["pooling_mode"])
    return _MODES.get(chosen[0]) if len(chosen) == 1 else None
