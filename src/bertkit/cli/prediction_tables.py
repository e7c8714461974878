"""Predictions as a table: CSV, TSV, Parquet or JSON lines."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from bertkit.errors import ConfigError, DataError

FORMATS = (".jsonl", ".csv", ".tsv", ".parquet")
ROW_GROUP = 4096

Row = Mapping[str, Any]


def check_format(out: Path) -> None:
    """Refuse a file name whose ending is none of :data:`FORMATS`, or whose folder does not exist.

    Raises:
        ConfigError: see above.
    """
    if out.suffix not in FORMATS:
        raise ConfigError(f"--out {out}: unknown format; the name must end in {', '.join(FORMATS)}")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: the folder {out.parent} does not exist")


def write_table(rows: Iterator[Row], out: Path) -> int:
    """Write predictions; the file appears when it is complete. Returns the number of rows.

    Columns: ``text``, ``text_pair`` (of pairs), ``predicted``, ``probability`` (of that label), then one column
    ``p_LABEL`` for each label, and ``truncated``. JSON lines keep the rows as they are.

    Raises:
        DataError: there are no rows.
    """
    first = next(rows, None)
    if first is None:
        raise DataError("the input has no rows, so there is nothing to predict")
    rows = chain([first], rows)
    partial = out.with_name(f".{out.name}.partial")
    try:
        if out.suffix == ".jsonl":
            count = _write_jsonl(rows, partial)
        elif out.suffix == ".parquet":
            count = _write_parquet(map(flat, rows), partial)
        else:
            count = _write_delimited(map(flat, rows), partial, "\t" if out.suffix == ".tsv" else ",")
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)
    return count


def flat(row: Row) -> dict[str, Any]:
    """One prediction as the cells of a table row."""
    cells = {key: row[key] for key in ("text", "text_pair", "predicted") if key in row}
    shares = row.get("probabilities")
    if shares is not None:
        cells["probability"] = shares[row["predicted"]]
        cells |= {f"p_{label}": share for label, share in shares.items()}
    return {**cells, "truncated": row["truncated"]}


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
        writer = csv.DictWriter(file, list(first), delimiter=delimiter)
        writer.writeheader()
        for row in chain([first], rows):
            writer.writerow(row)
            count += 1
    return count


def _write_parquet(rows: Iterator[Row], path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = list(islice(rows, ROW_GROUP))
    schema = pa.Table.from_pylist([dict(row) for row in first]).schema
    count = 0
    with pq.ParquetWriter(path, schema) as writer:
        part = first
        while part:
            writer.write_table(pa.Table.from_pylist([dict(row) for row in part], schema=schema))
            count += len(part)
            part = list(islice(rows, ROW_GROUP))
    return count
