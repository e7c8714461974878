"""Predictions as a table: CSV, TSV, Parquet or JSON lines."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bertkit.errors import ConfigError, DataError
from bertkit.system.atomic_files import held_lock
from bertkit.system.untrusted_files import Json

FORMATS = (".jsonl", ".csv", ".tsv", ".parquet")
ROW_GROUP = 4096

#: What a field of ours is called where the input has a column of its name.
OWN = "bertkit_"
_AT_THE_END = ("probabilities", "truncated", "empty")

Row = dict[str, Json]


def check_format(out: Path) -> None:
    """Raises ConfigError for a name whose ending is none of :data:`FORMATS`, or whose folder does not exist."""
    if out.suffix not in FORMATS:
        raise ConfigError(f"--out {out}: unknown format; the name must end in {', '.join(FORMATS)}")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: the folder {out.parent} does not exist")


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Held while a new file is made; ConfigError if it exists, or another process is making it."""
    busy = f"another process is writing {out}; wait for it, or choose another name for the output"
    with held_lock(out.with_name(f".{out.name}.lock"), busy):
        if out.exists():
            raise ConfigError(f"{out} exists already; remove it or choose another name")
        yield


def write_table(rows: Iterable[Row], out: Path) -> int:
    """Write predictions; the file appears when it is complete. Returns the number of rows.

    Columns: those of the input, ``text``, ``text_pair`` (of pairs), ``predicted``, ``probability`` (of that label),
    then one column ``p_LABEL`` for each label, ``truncated`` and ``empty``. JSON lines keep the rows as they are.

    Raises:
        DataError: there are no rows, or a column holds values of different types, which Parquet cannot.
    """
    source = iter(rows)
    first = next(source, None)
    if first is None:
        raise DataError("the input has no rows, so there is nothing to predict")
    every = chain([first], source)
    partial = out.with_name(f".{out.name}.table")
    try:
        if out.suffix == ".jsonl":
            count = _write_jsonl(every, partial)
        elif out.suffix == ".parquet":
            count = _write_parquet(map(flat, every), partial)
        else:
            count = _write_delimited(map(flat, every), partial, "\t" if out.suffix == ".tsv" else ",")
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)
    return count


def read_table_lines(path: Path) -> Iterator[Row]:
    """The rows of a file of JSON lines that this program wrote."""
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def flat(row: dict[str, Any]) -> Row:
    """One prediction as the cells of a table row."""
    ours = {name: key for key in row for name in (key.removeprefix(OWN),)}  # ours come last, under either name
    cells = {key: _cell(value) for key, value in row.items() if key not in (ours.get(name) for name in _AT_THE_END)}
    shares = row.get(ours.get("probabilities", ""))
    if shares is not None:
        predicted = row[ours["predicted"]]
        several = isinstance(predicted, list)
        cells["probability"] = "|".join(f"{shares[label]:.4f}" for label in predicted) if several else shares[predicted]
        cells |= {f"p_{label}": share for label, share in shares.items()}
    if "truncated" in ours:
        cells[ours["truncated"]] = row[ours["truncated"]]
    return {**cells, ours.get("empty", "empty"): bool(row.get(ours.get("empty", ""), False))}


def _cell(value: Json) -> Json:
    if isinstance(value, list):
        texts = [part for part in value if isinstance(part, str)]
        if len(texts) == len(value):
            return "|".join(texts)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _write_jsonl(rows: Iterator[Row], path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
            count += 1
    return count


def _write_delimited(rows: Iterator[Row], path: Path, delimiter: str) -> int:
    first = next(rows)
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(first), delimiter=delimiter, extrasaction="ignore")
        writer.writeheader()
        for row in chain([first], rows):
            writer.writerow(row)
            count += 1
    return count


def _write_parquet(rows: Iterator[Row], path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    part = list(islice(rows, ROW_GROUP))
    schema = pa.Table.from_pylist(part).schema
    count = 0
    with path.open("wb") as file, pq.ParquetWriter(file, schema) as writer:  # Arrow takes paths in UTF-8 only
        while part:
            writer.write_table(pa.Table.from_pylist(part, schema=schema))
            count += len(part)
            part = list(islice(rows, ROW_GROUP))
    return count
