"""Documents in tables: one per row of a JSONL or Parquet file."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from bertkit.data.corpus.text_files import Policy, Source, read_lines
from bertkit.errors import shorten
from bertkit.system.untrusted_files import Json, half_pair_at

#: The text column unless another is named.
DEFAULT_COLUMN = "text"
#: Rows of a Parquet file held in memory as Python strings.
ROWS_AT_A_TIME = 256

#: Where a document begins and its lines.
Found = tuple[str, list[str]]


def read_jsonl(chunks: Iterator[bytes], name: str, column: str | None, policy: Policy) -> Iterator[Found]:
    """One JSON object per line; its text is a string (of one paragraph per line) or a list of strings.

    ``column`` is the key of the text; None means ``"text"``, or the only key whose value is text. The policy decides
    about rows that are not a JSON object or lack the text.
    """
    for number, line in read_lines(chunks, name, policy):
        if line is None or not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            row: Json = json.loads(line)
        except (ValueError, RecursionError) as error:
            policy.bad("bad JSON", f"{where}: not a JSON object: {error}; one object a line is expected, correct it")
            continue
        if not isinstance(row, dict):
            policy.bad(
                "bad JSON",
                f"{where}: expected a JSON object with the text, got {_kind_of(row)}; write one object a line",
            )
            continue
        texts = [key for key, value in row.items() if isinstance(value, (str, list))]
        key = column or (texts[0] if DEFAULT_COLUMN not in row and len(texts) == 1 else DEFAULT_COLUMN)
        if key not in row:
            policy.bad("no text column", f"{where}: {_no_column(column, list(row))}")
            continue
        lines = _lines_of(row[key], where, key, policy)
        if lines is not None:
            yield where, lines


def read_parquet(source: Source, column: str | None, policy: Policy) -> Iterator[Found]:
    """One document per row of a Parquet file; rows count from 1. Memory: one row group of the text column.

    ``column`` is as for :func:`read_jsonl`, of type string or list of strings. The policy decides about a damaged file,
    one without the column, and rows that are not text.
    """
    assert source.path is not None, "Parquet is never read from standard input"
    number = num_rows = position = 0
    try:
        size = source.path.stat().st_size
        with source.path.open("rb") as stream, pq.ParquetFile(stream) as file:  # Arrow takes paths in UTF-8 only
            key = _parquet_column(file.schema_arrow, column, source.name, policy)
            if key is None:
                return
            for batch in file.iter_batches(batch_size=ROWS_AT_A_TIME, columns=[key], use_threads=False):
                num_rows += len(batch)
                policy.report.file_bytes_read += size * num_rows // file.metadata.num_rows - position
                position = size * num_rows // file.metadata.num_rows
                for value in batch.column(0):  # by position: a nested column may get another name
                    number += 1
                    where = f"{source.name}:row {number}"
                    try:
                        text = value.as_py()
                    except UnicodeDecodeError as error:
                        fault = f"{where}: byte {error.start + 1} of the text is not UTF-8; write the file again"
                        policy.bad("bad UTF-8", fault)
                        continue
                    lines = _lines_of(text, where, key, policy)
                    if lines is not None:
                        policy.report.bytes_read += sum(len(line.encode()) for line in lines)
                        yield where, lines
    except (pa.ArrowException, OSError) as error:
        policy.bad(
            "damaged file", f"{source.name} cannot be read as Parquet after row {number}: {error}; write it again"
        )


def _parquet_column(schema: pa.Schema, column: str | None, name: str, policy: Policy) -> str | None:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_dictionary)
    strings = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    kinds = {
        field.name: field.type.value_type if any(is_list(field.type) for is_list in lists) else field.type
        for field in schema
    }
    texts = [name for name, kind in kinds.items() if any(is_string(kind) for is_string in strings)]
    key = column or (DEFAULT_COLUMN if DEFAULT_COLUMN in texts or len(texts) != 1 else texts[0])
    if key in texts:
        return key
    if key in schema.names:
        found = schema.field(key).type
        policy.bad("no text column", f"{name}: column {key!r} holds {found}, expected strings; name another (--text)")
    else:
        policy.bad("no text column", f"{name}: {_no_column(column, schema.names)}")
    return None


def _no_column(column: str | None, names: list[str]) -> str:
    return f"no column {column or DEFAULT_COLUMN!r}, there is {shorten(names) or 'none'}; name the text column (--text)"


def _lines_of(value: Json, where: str, key: str, policy: Policy) -> list[str] | None:
    """The lines of one row's text, or None if the policy skips it. A null is a row without text."""
    if value is None:
        return []
    listed = [value] if isinstance(value, str) else value
    texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
    if not isinstance(listed, list) or len(texts) != len(listed):
        policy.bad(
            "not text",
            f"{where}: {key!r} must be a string or a list of strings, got {_kind_of(value)}; correct the row",
        )
        return None
    for text in texts:
        if "\0" in text:
            place = text.index("\0") + 1
            policy.bad("NUL", f"{where}: {key!r} has a NUL at character {place}; correct the row")
            return None
        if (half := half_pair_at(text)) is not None:
            fault = f"has half of a surrogate pair at character {half + 1}"
            policy.bad("bad UTF-8", f"{where}: {key!r} {fault}; correct the row")
            return None
    return [line for text in texts for line in text.split("\n")]


def _kind_of(value: Json) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a truth value", type(None): "null"}
    return names.get(type(value), f"{value!r:.40}")
