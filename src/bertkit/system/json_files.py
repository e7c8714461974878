"""JSON and JSON Lines files that a run writes and a later one reads back.

Anyone may have edited or truncated them in between, so every reader here raises
:class:`~bertkit.errors.CheckpointError` for what is damaged, with the file, what was found and what is expected.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from bertkit.errors import CheckpointError, ConfigError
from bertkit.system.atomic_files import write_atomically
from bertkit.system.typed_values import WrongValueError, typed
from bertkit.system.untrusted_files import Json, open_regular, read_regular, strict_json

T = TypeVar("T")

#: Larger than any file that a run writes; a training state with the generators of 1,000 ranks has 20 MB.
MAX_BYTES = 64 << 20
#: Bytes of a path that the locale cannot decode, as Python keeps them.
_UNDECODED = re.compile("[\udc80-\udcff]+")


def read_json(path: Path, kind: type[T]) -> T:
    """A JSON file checked against a type; unknown fields of a dataclass are ignored: newer versions may write them."""
    if not path.exists():
        raise CheckpointError(f"{path} does not exist: {path.parent} is not a finished run folder")
    content = read_regular(path, max_bytes=MAX_BYTES)
    try:
        values = strict_json(content, max_values=10_000_000)
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None
    return parsed(values, kind, str(path))


def parsed(values: object, kind: type[T], source: str) -> T:
    """Plain data as a ``kind``, see :func:`read_json`; ``source`` says where it stands."""
    try:
        return typed(values, kind)
    except WrongValueError as error:
        raise CheckpointError(f"{source} is damaged: {str(error)[:300]}") from None
    except ConfigError as error:  # of settings that are refused as a whole
        raise CheckpointError(f"{source} is damaged: {error}") from None


def write_json(path: Path, values: object) -> None:
    """Write a JSON file atomically; NaN and infinity, which JSON does not have, are a ValueError."""
    write_atomically(path, _as_text(values, indent=2) + "\n")


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON Lines file, one at a time; an unfinished last line, from a killed process, is left out."""
    with open_regular(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                record = strict_json(line)
            except ValueError as error:
                raise CheckpointError(f"{path}:{number} is damaged: {error}") from None
            if not isinstance(record, dict):
                raise CheckpointError(f"{path}:{number} is damaged: expected a JSON object, got {record!r:.60}")
            yield record


def as_stored(values: Mapping[str, Json]) -> dict[str, Json]:
    """Plain data as it will be read back: lists for tuples."""
    stored: dict[str, Json] = json.loads(_as_text(values))
    return stored


def _as_text(values: object, indent: int | None = None) -> str:
    """JSON; parts of paths that are not UTF-8 become :func:`printable`."""
    text = json.dumps(values, indent=indent, ensure_ascii=False, allow_nan=False)
    return _UNDECODED.sub(lambda found: printable(found[0]).replace("\\", r"\\"), text)


def printable(name: str | Path) -> str:
    """A path as UTF-8 text; other bytes, half surrogates in Python, are written as a backslash and hex digits."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
