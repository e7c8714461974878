"""Documents in tables: one per row of a JSONL or Parquet file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bertkit.data.corpus.bad_input import Policy
from bertkit.data.corpus.text_files import Source, read_lines
from bertkit.errors import DataError, shorten
from bertkit.system.untrusted_files import half_pair_at

#: The text column unless another is named.
DEFAULT_COLUMN = "text"
#: Rows of a Parquet file held in memory as Python strings.
ROWS_AT_A_TIME = 256

#: Where a document begins and its lines.
Found = tuple[str, list[str]]


def read_jsonl(chunks: Iterator[bytes], name: str, column: str | None, policy: Policy) -> Iterator[Found]:
    """One JSON object per line; its text is a string (of one paragraph per line) or a list of strings.

    Args:
        chunks: bytes of the file.
        name: of the file, for messages.
        column: key of the text; None means ``"text"``, or the only key whose value is text.
        policy: decides about unusable rows.

    Raises:
        DataError: with ``file:line``, a row that is not a JSON object or lacks the text (unless the policy skips it).
    """
    for number, line in read_lines(chunks, name, policy):
        if line is None or not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            policy.bad("bad JSON", f"{where}: not a JSON object: {error}; one object a line is expected, correct it")
            continue
        if not isinstance(row, Mapping):
            policy.bad(
                "bad JSON",
                f"{where}: expected a JSON object with the text, got {_kind_of(row)}; write one object a line",
            )
            continue
        key = column or _only_text(row)
        if key not in row:
            policy.bad("no text column", f"{where}: {_no_column(column, list(row))}")
            continue
        lines = _lines_of(row[key], where, str(key), policy)
        if lines is not None:
            yield where, lines


def read_parquet(source: Source, column: str | None, policy: Policy) -> Iterator[Found]:
    """One document per row of a Parquet file; rows count from 1. Memory: one row group of the text column.

    Args:
        source: a file on disk.
        column: see :func:`read_jsonl`; of type string, or list of strings.
        policy: decides about unusable rows.

    Raises:
        DataError: not a Parquet file, no such column, a row that is not text (unless the policy skips it).
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
                    yield from _parquet_row(value, f"{source.name}:row {number}", key, policy)
    except (pa.ArrowException, OSError) as error:
        policy.bad(
            "damaged file", f"{source.name} cannot be read as Parquet after row {number}: {error}; write it again"
        )


def _parquet_row(value: Any, where: str, key: str, policy: Policy) -> Iterator[Found]:
    try:
        text = value.as_py()
    except UnicodeDecodeError as error:
        policy.bad("bad UTF-8", f"{where}: byte {error.start + 1} of the text is not UTF-8; write the file again")
        return
    lines = _lines_of(text, where, key, policy)
    if lines is not None:
        policy.report.bytes_read += sum(len(line.encode()) for line in lines)
        yield where, lines


def _parquet_column(schema: pa.Schema, column: str | None, name: str, policy: Policy) -> str | None:
    texts = [field.name for field in schema if _is_text(field.type)]
    key = column or (DEFAULT_COLUMN if DEFAULT_COLUMN in texts or len(texts) != 1 else texts[0])
    if key in texts:
        return key
    if key in schema.names:
        found = schema.field(key).type
        policy.bad("no text column", f"{name}: column {key!r} holds {found}, expected strings; name another (--text)")
    else:
        policy.bad("no text column", f"{name}: {_no_column(column, schema.names)}")
    return None


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _only_text(row: Mapping[str, Any]) -> str:
    if DEFAULT_COLUMN in row:
        return DEFAULT_COLUMN
    texts = [key for key, value in row.items() if isinstance(value, (str, list))]
    return texts[0] if len(texts) == 1 else DEFAULT_COLUMN


def _no_column(column: str | None, names: list[str]) -> str:
    return f"no column {column or DEFAULT_COLUMN!r}, there is {shorten(names) or 'none'}; name the text column (--text)"


def _lines_of(value: Any, where: str, key: str, policy: Policy) -> list[str] | None:
    """The lines of one row's text, or None if the policy skips it. A null is a row without text."""
    if value is None:
        return []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        policy.bad(
            "not text",
            f"{where}: {key!r} must be a string or a list of strings, got {_kind_of(value)}; correct the row",
        )
        return None
    try:
        _check(texts)
    except DataError as error:
        policy.bad("NUL" if "NUL" in str(error) else "bad UTF-8", f"{where}: {key!r} {error}; correct the row")
        return None
    return [line for text in texts for line in text.split("\n")]


def _check(texts: list[str]) -> None:
    for text in texts:
        if "\0" in text:
            raise DataError(f"has a NUL at character {text.index(chr(0)) + 1}")
        place = half_pair_at(text)
        if place is not None:
            raise DataError(f"has half of a surrogate pair at character {place + 1}")


def _kind_of(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a truth value", type(None): "null"}
    return names.get(type(value), f"{value!r:.40}")
