"""Rows of TSV, CSV, JSON-lines and Parquet files, each with the line it begins at.

A file is read as a stream, twice: once for its columns, once for its rows. Text must be UTF-8, with or without a byte
order mark. Blank lines between rows carry no data and are passed over, as every CSV reader does.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from bertkit.errors import DataError
from bertkit.system.untrusted_files import half_pair_at
from bertkit.tasks.examples import Columns, SkippedRow
from bertkit.tasks.reading.splits import kind_of, open_binary

#: Longest line and longest CSV field, in bytes and in characters. Larger ones are a sign of a quote left open or of a
#: file that is no text; without a bound one such file would fill the memory.
MAX_LINE = 64 * 1024 * 1024
MAX_FIELD = 10_000_000
Values = tuple[int, tuple[Any, ...]]
OnError = Literal["raise", "skip"]
#: How a delimiter is typed on a command line.
_TYPED = {"\t": "tab", ";": "';'", "|": "'|'"}
_QUOTED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')
#: The escape of a surrogate, whole pairs among them; JSON can spell a half.
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
HALF_PAIR = (
    "a text has half of a surrogate pair, as of an emoji that was cut in two; no file can hold it. Remove the half"
)
#: What reading a damaged or unreadable file raises.
DAMAGED = (lzma.LZMAError, zlib.error, EOFError, OSError)


class BadRows:
    """Raises at the first bad row, or counts bad rows with their reasons."""

    def __init__(self, on_error: OnError = "raise") -> None:
        if on_error not in ("raise", "skip"):
            raise DataError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
        self.skips = on_error == "skip"
        self.skipped: list[SkippedRow] = []

    def report(self, path: Path, row: int, kind: str, message: str) -> None:
        """A row that cannot be used.

        Raises:
            DataError: unless rows are to be skipped.
        """
        text = f"{path}:{row}: {message}"
        if not self.skips:
            raise DataError(text)
        self.skipped.append(SkippedRow(f"{path}:{row}", kind, text))


class Table(Protocol):
    """A file of rows."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in the file's order."""

    def rows(self, names: Sequence[str]) -> Iterator[Values]:
        """``(line, values of those columns)`` of each row, from 1, in the file's order.

        Args:
            names: some of :attr:`columns`; the values come in this order.

        Yields:
            The line of the file (of Parquet: the row) and one value a name: text, or in JSONL and Parquet what the
            file holds. A row that cannot be used is reported to :class:`BadRows` and, if that goes on, left out.

        Raises:
            DataError: a bad row where they are not to be skipped; a file that cannot be read to its end.
        """


def open_table(path: Path, layout: Columns, bad: BadRows) -> Table:
    """The table in a file, by its suffix.

    Args:
        path: a file with one of the known suffixes.
        layout: quoting, delimiter, and the columns of a file without a header.
        bad: told of every bad row.

    Raises:
        DataError: an unknown suffix, an empty file, a header that repeats a name, bytes that are not text.
    """
    kind = kind_of(path)
    if kind in (".jsonl", ".ndjson"):
        return JsonTable(path, bad)
    if kind == ".parquet":
        return ParquetTable(path, bad)
    if kind in (".csv", ".tsv"):
        return DelimitedTable(path, bad, layout, tabs=kind == ".tsv")
    raise DataError(f"{path}: the name must end in .tsv, .csv, .jsonl or .parquet (or one of them and .xz, .gz, .bz2)")


class Lines:
    """Lines of a text file, decoded one by one so that a wrong byte has a line number.

    Attributes:
        number: lines given out so far.
        damaged: kind and message of lines with wrong bytes, kept only while bad rows are skipped.
    """

    def __init__(self, path: Path, bad: BadRows) -> None:
        self.path = path
        self.number = 0
        self.damaged: dict[int, tuple[str, str]] = {}
        self._bad = bad

    def __iter__(self) -> Iterator[str]:
        try:
            with open_binary(self.path) as stream:
                for raw in iter(lambda: stream.readline(MAX_LINE), b""):
                    self.number += 1
                    yield self._decode(raw)
        except DAMAGED as error:
            raise DataError(f"{self.path}: damaged or cut short after line {self.number}: {error}") from None

    def _decode(self, raw: bytes) -> str:
        if self.number == 1:
            if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise DataError(f"{self.path}: this is UTF-16; save it as UTF-8 (iconv -f utf-16 -t utf-8)")
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if len(raw) >= MAX_LINE and not raw.endswith(b"\n"):
            raise DataError(f"{self.path}:{self.number}: a line of more than {MAX_LINE:,} bytes; is this a text file?")
        if b"\0" in raw:
            self._damage("NUL", f"a NUL byte at byte {raw.index(0) + 1} of the line; is this a text file in UTF-8?")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            self._damage(
                "not UTF-8",
                f"byte {error.start + 1} of the line, 0x{raw[error.start]:02x}, is not UTF-8. "
                "Convert the file, for example with iconv -f cp1252 -t utf-8",
            )
            return raw.decode("utf-8", "surrogateescape")

    def _damage(self, kind: str, message: str) -> None:
        if not self._bad.skips:
            self._bad.report(self.path, self.number, kind, message)
        self.damaged[self.number] = (kind, message)

    def report_damage(self, start: int, end: int) -> bool:
        """Tell of damaged lines among ``start ... end``; True when there was one."""
        hit = [line for line in self.damaged if start <= line <= end]
        for line in hit:
            self._bad.report(self.path, line, *self.damaged.pop(line))
        return bool(hit)


class DelimitedTable:
    """CSV or TSV with a header row, or with the columns that ``layout.headerless`` names."""

    def __init__(self, path: Path, bad: BadRows, layout: Columns, *, tabs: bool) -> None:
        self.path = path
        self._bad = bad
        self._delimiter = layout.delimiter or ("\t" if tabs else ",")
        self._quoted = layout.quoting == "csv" or (layout.quoting is None and not tabs)
        self._suspect_quotes = layout.quoting is None and tabs
        first = next(self._records(BadRows()), None)
        if first is None:
            raise DataError(f"{path} is empty: expected a header and rows")
        names = tuple(name.strip() for name in first[1])
        self._has_header = not layout.headerless or any(name in names for name in layout.text)
        self.columns = names if self._has_header else layout.headerless
        if self._has_header:
            self._check_header(first[0])

    def rows(self, names: Sequence[str]) -> Iterator[Values]:
        """As :meth:`Table.rows`; checks the number of fields, and quotes that are data."""
        wanted = [self.columns.index(name) for name in names]
        width = len(self.columns)
        records = self._records(self._bad)
        if self._has_header:
            next(records)
        for line, fields in records:
            if len(fields) != width:
                self._bad.report(self.path, line, "ragged row", self._ragged(fields))
                continue
            values = tuple(fields[column] for column in wanted)
            if self._suspect_quotes:
                self._check_unquoted(line, values)
            yield line, values

    def _records(self, bad: BadRows) -> Iterator[tuple[int, list[str]]]:
        lines = Lines(self.path, bad)
        return self._quoted_records(lines) if self._quoted else self._plain_records(lines)

    def _plain_records(self, lines: Lines) -> Iterator[tuple[int, list[str]]]:
        for text in lines:
            text = text.removesuffix("\n").removesuffix("\r")
            if text and not (lines.damaged and lines.report_damage(lines.number, lines.number)):
                yield lines.number, text.split(self._delimiter)

    def _quoted_records(self, lines: Lines) -> Iterator[tuple[int, list[str]]]:
        csv.field_size_limit(max(MAX_FIELD, csv.field_size_limit()))  # the default refuses texts over 128 KiB
        reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
        while True:
            start = reader.line_num + 1
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise DataError(self._explain(error, start, reader.line_num)) from None
            if lines.damaged and lines.report_damage(start, reader.line_num):
                continue
            if fields:
                yield start, fields

    def _explain(self, error: csv.Error, start: int, end: int) -> str:
        said = str(error)
        if "unexpected end of data" in said:
            why = "a double quote opened in this row is never closed (read to the end of the file)"
        elif "field larger" in said:
            why = f"a field has more than {MAX_FIELD:,} characters, most likely because a double quote is left open"
        elif "new-line character" in said:
            why = "a carriage return stands alone; save the file with \\n or \\r\\n at the end of lines"
        else:
            why = f"wrong quoting ({said})" + (f", found at line {end}" if end > start else "")
        return (
            f"{self.path}:{start}: {why}. Enclose a field in double quotes and double the quotes inside it, "
            "or say that quotes are plain characters (quoting='none', --quoting none)"
        )

    def _check_header(self, line: int) -> None:
        where = f"{self.path}:{line}"
        _must_differ(where, self.columns)
        if self._suspect_quotes and any(len(n) > 1 and n[0] == n[-1] == '"' for n in self.columns):
            raise DataError(
                f"{where}: the header is quoted: say quoting='csv' (--quoting csv) if double quotes enclose fields"
            )
        other = next((mark for mark in ";\t|," if mark != self._delimiter and mark in self.columns[0]), None)
        if len(self.columns) == 1 and other:
            raise DataError(
                f"{where}: one column, {self.columns[0]!r}: the fields seem to be separated by {other!r}, "
                f"not {self._delimiter!r}. Say delimiter={other!r} (--delimiter {_TYPED.get(other, other)})"
            )

    def _check_unquoted(self, line: int, values: tuple[str, ...]) -> None:
        if any(text[:1] == '"' and _QUOTED.fullmatch(text) for text in values):
            raise DataError(
                f"{self.path}:{line}: a field is enclosed in quotes with doubled quotes inside, as CSV writers do, in "
                "a file of tab-separated values. Say quoting='csv' (--quoting csv) to take the quotes away, "
                "quoting='none' (--quoting none) to keep them"
            )

    def _ragged(self, fields: list[str]) -> str:
        hint = "a tab inside a text, or a line broken in two?" if self._delimiter == "\t" else "a text without quotes?"
        return f"the row has {len(fields)} fields, expected {len(self.columns)}: {list(self.columns)}. {hint}"


def _must_differ(where: str, columns: Sequence[str]) -> None:
    doubled = sorted({name for name in columns if columns.count(name) > 1})
    if doubled:
        raise DataError(f"{where}: the header names column {doubled[0]!r} more than once: {list(columns)}")


class JsonTable:
    """One JSON object a line. The columns are the keys of the first object."""

    def __init__(self, path: Path, bad: BadRows) -> None:
        self.path = path
        self._bad = bad
        first = next(self._objects(BadRows("skip")), None)
        if first is None:
            list(self._objects(BadRows()))  # names the first line that is no object, when there is one
            raise DataError(f"{path} is empty: expected one JSON object a line")
        self.columns = tuple(first[1])

    def rows(self, names: Sequence[str]) -> Iterator[Values]:
        """As :meth:`Table.rows`; None for a name that an object does not have."""
        for line, record in self._objects(self._bad):
            yield line, tuple(record.get(name) for name in names)

    def _objects(self, bad: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
        lines = Lines(self.path, bad)
        for text in lines:
            if lines.damaged and lines.report_damage(lines.number, lines.number):
                continue
            if not text.strip():
                continue
            try:
                record = json.loads(text)
            except (json.JSONDecodeError, RecursionError) as error:
                why = "; give one whole object a line (JSON lines)" if lines.number == 1 else ""
                bad.report(self.path, lines.number, "not JSON", f"not a JSON object: {error}{why}")
                continue
            if _HALF_PAIR.search(text) and half_pair_at(json.dumps(record, ensure_ascii=False)) is not None:
                bad.report(self.path, lines.number, "half a character", HALF_PAIR)
            elif isinstance(record, dict):
                yield lines.number, record
            else:
                message = f'expected a JSON object such as {{"text": ...}}, got a {type(record).__name__}'
                bad.report(self.path, lines.number, "not an object", message)


class ParquetTable:
    """A Parquet file; rows are counted from 1."""

    def __init__(self, path: Path, bad: BadRows) -> None:
        import pyarrow as pa  # 0.1 s, and most files are text
        import pyarrow.parquet as pq

        self.path = path
        self._bad = bad
        try:
            if path.name.casefold().endswith(".parquet"):
                self._file = pq.ParquetFile(path)
            else:
                with open_binary(path) as stream:
                    self._file = pq.ParquetFile(io.BytesIO(stream.read()))
            self.columns = tuple(self._file.schema_arrow.names)
        except (pa.ArrowException, *DAMAGED) as error:
            raise DataError(f"{path}: not a readable Parquet file: {error}") from None
        _must_differ(str(path), self.columns)

    def rows(self, names: Sequence[str]) -> Iterator[Values]:
        """As :meth:`Table.rows`, a batch of rows in memory at a time."""
        import pyarrow as pa

        row = 0
        try:
            for batch in self._file.iter_batches(batch_size=4096, columns=list(names)):
                columns = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in names]
                for values in zip(*columns, strict=True):
                    row += 1
                    yield row, values
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self.path}: damaged after row {row}: {error}") from None
