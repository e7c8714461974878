"""The decision file of a model: how it was trained to read its input, and what was chosen on dev.

It is saved with the weights, so that evaluation, files and pipelines decide alike. Answers depend on its numbers, so it
has a checksum, as the weights have, and a field or a value that no run writes is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from zlib import crc32

from bertkit.errors import CheckpointError
from bertkit.system.checksums import not_as_written
from bertkit.system.json_files import as_stored, parsed, read_json, write_json
from bertkit.system.model_sources import HEADS
from bertkit.system.paths import user_path
from bertkit.system.untrusted_files import Json, is_there
from bertkit.system.validated_settings import Field, FileSettings

#: The file in a model's folder. A model without one decides by its logits alone.
DECISION = "decision.json"
#: In the file, the CRC-32 of the rest of it.
CHECKSUM = "crc32"

Length = Annotated[int, Field(ge=1, le=1_000_000)]
Figures = dict[str, int | float | str | dict[str, float]]


class Decision(FileSettings):
    """What the file may hold; what is None or left out was not decided.

    prefix: what a model that writes text puts before its input.
    temperature: what logits are divided by; fitted ones are from 0.05 to 20.
    thresholds: by label, the probability from which it is given; just above 1, never.
    measured, tuned: what the temperature and the thresholds are worth on dev; for people.
    """

    max_length: Length | None = Field(None, ge=3)
    long_texts: Literal["cut", "head_tail", "windows"] = "cut"
    overlap: int | None = Field(None, ge=0, le=1_000_000)
    doc_stride: Length | None = None
    max_query_length: Length | None = None
    max_answer_length: Length | None = None
    prefix: str | None = None
    temperature: float = Field(1.0, ge=1e-3, le=1e3)
    thresholds: dict[str, Annotated[float, Field(ge=0, le=1.0001)]] | None = None
    null_threshold: float | None = None
    measured: Figures | None = None
    tuned: Figures | None = None


def write_decision(folder: str | Path, decision: Mapping[str, Json]) -> None:
    """Save a decision in a model's folder; an empty one writes no file."""
    if decision:
        write_json(user_path(folder) / DECISION, {**decision, CHECKSUM: _checksum(as_stored(decision))})


def read_decision(folder: str | Path) -> dict[str, Json]:
    """The decision in a model's folder, or an empty one; of a model with several heads, those of its heads by name.

    Raises:
        CheckpointError: the file is damaged or was edited, or has a field or a value that no run writes.
    """
    path = Path(folder) / DECISION
    if not is_there(path):
        return {}
    values: dict[str, Json] = read_json(path, dict)
    if values.pop(CHECKSUM, None) not in (None, _checksum(values)):
        raise not_as_written(path)
    if not (path.parent / HEADS).is_dir():
        return _checked(values, str(path))
    return {name: _checked(own, f"{path}: {name}") for name, own in values.items()}


def accept_decision(path: Path) -> bool:
    """Give a decision file that was edited the checksum of what it holds; whether it had another one."""
    values: dict[str, Json] = read_json(path, dict)
    if values.pop(CHECKSUM, None) in (None, _checksum(values)):
        return False
    write_decision(path.parent, values)
    return True


def _checked(values: Json, source: str) -> dict[str, Json]:
    if not isinstance(values, Mapping):
        raise CheckpointError(f"{source} is damaged: expected settings by name, got {values!r:.60}")
    return parsed(values, Decision, source).model_dump(exclude_unset=True)


def _checksum(values: Mapping[str, Json]) -> str:
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return f"{crc32(text.encode('utf-8', 'surrogatepass')):08x}"
