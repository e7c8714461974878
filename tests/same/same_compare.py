"""Where the outputs of two trees differ, and which of the differences were meant.

Times, speeds and versions are left out; everything else must be equal to the last bit.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load

#: Keys whose values differ from run to run: times, speeds, and the version of this package.
VOLATILE = re.compile(r"^(seconds|milliseconds|\w+_per_s|peak_share|bertkit|version)$")
#: Files that are for people, or that hold what changes from run to run.
LEFT_OUT = ("*.png", "*.md", "*.lock", "*.onnx", "*.onnx.data", "*.onnx_data")


@dataclass(frozen=True)
class Difference:
    """One place at which an item's outputs are not the same.

    item: of :mod:`same_jobs`.
    where: file and place in it, for example ``runs/text/metrics.json: scores.accuracy``.
    what: both values, short.
    apart: how far from each other, of numbers; else None.
    """

    item: str
    where: str
    what: str
    apart: float | None = None


@dataclass(frozen=True)
class Expected:
    """A difference that was meant: patterns (``*``) of item and place, the finding's number, and why.

    within: only numbers that are at most so far apart; None: whatever differs.
    """

    item: str
    where: str
    finding: str
    reason: str
    within: float | None = None

    def covers(self, difference: Difference) -> bool:
        near = self.within is None or (difference.apart is not None and difference.apart <= self.within)
        return near and fnmatchcase(difference.item, self.item) and fnmatchcase(difference.where, self.where)


def read_expected(path: Path) -> list[Expected]:
    """The list of expected differences; ``where`` may be left out and is then every place, ``within`` as well.

    Raises:
        ValueError: an entry lacks a field, or has one that is not known.
    """
    found = []
    for number, entry in enumerate(tomllib.loads(path.read_text(encoding="utf-8")).get("difference", []), start=1):
        needed = {"item", "finding", "reason"}
        if not needed <= entry.keys() <= needed | {"where", "within"}:
            raise ValueError(
                f"{path}, entry {number}: expected item, finding, reason and perhaps where and within, got {[*entry]}"
            )
        place, within = entry.get("where", "*"), entry.get("within")
        found.append(Expected(entry["item"], place, str(entry["finding"]), entry["reason"], within))
    return found


def compare_outputs(item: str, where: str, old: Path, new: Path, *, shape_only: bool = False) -> Iterator[Difference]:
    """The differences between two files or folders.

    Args:
        item: the job that wrote them.
        where: how the files are called in the result.
        old: of the commit that the present tree is compared with.
        new: of the present tree.
        shape_only: of JSON compare keys and types alone.
    """
    if not old.exists() or not new.exists():
        if old.exists() != new.exists():
            yield Difference(item, where, "only before" if old.exists() else "only now")
        return
    if old.is_dir() and new.is_dir():
        for name in sorted({path.name for folder in (old, new) for path in folder.iterdir()}):
            if not any(fnmatchcase(name, pattern) for pattern in LEFT_OUT):
                yield from compare_outputs(item, f"{where}/{name}", old / name, new / name, shape_only=shape_only)
        return
    contents = old.read_bytes(), new.read_bytes()
    if contents[0] == contents[1] or (shape_only and not contents[0].strip()):
        return
    try:
        values = [read_values(path, path.name) for path in (old, new)]
    except ValueError as error:
        yield Difference(item, where, f"bytes differ, and one cannot be read: {error}")
        return
    if values[0] is None or values[1] is None:
        yield Difference(item, where, f"bytes differ ({len(contents[0]):,} and {len(contents[1]):,})")
        return
    differences = list(compare_values(item, f"{where}: ", *values, shape_only=shape_only))
    if not differences and old.suffix in (".safetensors", ".npy"):
        yield Difference(item, where, "the values are the same, the bytes are not")
    yield from differences


def read_values(path: Path, name: str) -> Any:
    """What a file holds, as plain values and arrays; None where its kind is not known."""
    kind = Path(name).suffix
    if kind == ".safetensors":
        return load(path.read_bytes())
    if kind == ".npz":
        with np.load(path) as arrays:
            return dict(arrays)
    if kind == ".npy":
        return {"array": np.load(path)}
    if kind == ".parquet":
        table = pq.read_table(path)
        return {"columns": table.schema.names, "rows": table.to_pylist()}
    text = path.read_text(encoding="utf-8")
    if kind == ".json":
        return json.loads(text)
    if kind == ".jsonl" or (kind == ".out" and text.lstrip().startswith("{")):
        return [json.loads(line) for line in text.splitlines()]
    if kind == ".csv":
        return list(csv.reader(io.StringIO(text)))
    if kind in (".txt", ".out", ".toml", ".code"):
        return text.splitlines()
    return None


def compare_values(item: str, where: str, old: Any, new: Any, *, shape_only: bool = False) -> Iterator[Difference]:
    """The differences between two values of JSON, or two sets of arrays."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            if VOLATILE.search(str(key)) and not shape_only:
                continue
            place = f"{where}{'' if where.endswith(': ') else '.'}{key}"
            if key not in old or key not in new:
                yield Difference(item, place, "only before" if key in old else "only now")
            else:
                yield from compare_values(item, place, old[key], new[key], shape_only=shape_only)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new) and not shape_only:
            yield Difference(item, where, f"{len(old)} values before, {len(new)} now")
        for number, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from compare_values(item, f"{where}[{number}]", one, other, shape_only=shape_only)
    elif isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        if old.dtype != new.dtype or old.shape != new.shape:
            yield Difference(item, where, f"{old.dtype}{old.shape} before, {new.dtype}{new.shape} now")
        elif old.tobytes() != new.tobytes():
            numbers = old.dtype.kind in "fiu"
            apart = float(np.abs(old.astype(float) - new.astype(float)).max()) if numbers else None
            yield Difference(item, where, f"values differ{'' if apart is None else f' by up to {apart:.3g}'}", apart)
    elif type(old) is not type(new) or (not shape_only and repr(old) != repr(new)):  # repr: nan is nan, 0.0 is not -0.0
        apart = abs(old - new) if isinstance(old, float) and isinstance(new, float) else None
        yield Difference(item, where, f"{shorten(old)} before, {shorten(new)} now", apart)


def shorten(value: Any) -> str:
    """A value in at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def judge(
    differences: Sequence[Difference], expected: Sequence[Expected], items: Sequence[str]
) -> tuple[list[Difference], list[Difference], list[Expected]]:
    """Differences that nobody expected, those that were, and entries of the list that no difference needs any more.

    Args:
        differences: all that were found.
        expected: the list.
        items: what was run; entries for other items are not called useless.
    """
    unexpected = [one for one in differences if not any(entry.covers(one) for entry in expected)]
    meant = [one for one in differences if any(entry.covers(one) for entry in expected)]
    useless = [
        entry
        for entry in expected
        if any(fnmatchcase(item, entry.item) for item in items) and not any(entry.covers(one) for one in meant)
    ]
    return unexpected, meant, useless
