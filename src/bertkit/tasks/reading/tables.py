"""Rows of labelled and unlabelled tables, each with the line it begins at: CSV, TSV, JSON, Parquet, Excel.

A text file is read as a stream, twice: once for its columns, once for its rows. Blank lines between rows carry no data
and are passed over, as every CSV reader does.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bertkit.config.file_columns import Columns
from bertkit.errors import ConfigError, DataError, counted, did_you_mean, needs_bertkit, shorten
from bertkit.system.console import say_once
from bertkit.system.untrusted_files import Json, RepeatedNameError, half_pair_at, unique_names
from bertkit.tasks.reading.bad_rows import HALF_PAIR, REMOVE, BadRows
from bertkit.tasks.reading.given_rows import Given, GivenTable, with_facts
from bertkit.tasks.reading.lines import DAMAGED, MAX_FIELD, Lines, read_text, seekable
from bertkit.tasks.reading.splits import SUFFIXES, kind_of
from bertkit.tasks.reading.titles import HEAD_ROWS, below_titles

if TYPE_CHECKING:
    import pyarrow as pa

#: Line and cells of a row; Parquet may hold anything.
Values = tuple[int, tuple[Any, ...]]
#: Columns that a message lists.
SHOWN_COLUMNS = 20
#: How a delimiter is typed on a command line.
_TYPED = {"\t": "tab", ";": "';'", "|": "'|'"}
#: The first line of a file that says what separates its fields.
_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_QUOTED = re.compile(r'"(?:[^"]|"")*""(?:[^"]|"")*"')
#: The escape of a surrogate, whole pairs among them; JSON can spell a half.
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


class Table(Protocol):
    """A file of rows."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, in the file's order."""

    def rows(self, names: Sequence[str]) -> Iterator[Values]:
        """``(line, values of those columns)`` of each row, from 1, in the file's order: one value a name.

        Values are text, or in JSON and Parquet what the file holds; the line is of Parquet and Excel the row, of a JSON
        array the object; rows in memory are counted from 0. A row that cannot be used is reported to :class:`BadRows`
        and, if that goes on, left out.
        """


def open_table(path: Path, layout: Columns, bad: BadRows) -> Table:
    """The table in a file, by its suffix; ``layout`` says how text is encoded, quoted and parted."""
    kind = kind_of(path)
    if layout.sheet is not None and kind != ".xlsx":
        raise ConfigError(f"{path} is no Excel workbook and has no sheets; leave sheet={layout.sheet!r} out")
    table: Table
    if isinstance(path, Given):
        table = GivenTable(path, bad)
    elif kind in (".jsonl", ".ndjson", ".json"):
        table = JsonTable(path, bad, layout.encoding, whole=kind == ".json")
    elif kind == ".parquet":
        table = ParquetTable(path)
    elif kind == ".xlsx":
        from bertkit.tasks.reading.excel import ExcelTable

        table = ExcelTable(path, layout)
    elif kind in (".csv", ".tsv"):
        table = DelimitedTable(path, bad, layout, tabs=kind == ".tsv")
    else:
        endings = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise DataError(f"{path}: the name must end in {endings} (or one of them and .xz, .gz, .bz2)")
    name, count = Counter(table.columns).most_common(1)[0] if table.columns else ("", 0)
    if count > 1:
        where = f"{path}:{table.header_line}" if isinstance(table, DelimitedTable) else str(path)
        raise DataError(
            f"{where}: the header names column {name!r} more than once: {names_of(table.columns)}; rename one"
        )
    return table


def records(table: Table) -> Iterator[tuple[int, dict[str, Json]]]:
    """``(line, values by column)`` of each row, with all that the file holds; see :meth:`Table.rows`."""
    if isinstance(table, JsonTable):  # an object may have more keys than the first one
        yield from table.objects()
        return
    for line, values in table.rows(table.columns):
        yield line, dict(zip(table.columns, values, strict=True))


def names_of(columns: Sequence[str]) -> str:
    """The names of columns for a message, shortened if there are very many."""
    return str(list(columns)) if len(columns) <= SHOWN_COLUMNS else shorten(columns, limit=SHOWN_COLUMNS)


def columns_to_search(table: Table, wanted: Sequence[str]) -> tuple[str, ...]:
    """The table's columns; those of JSON are the first row's, so that where none is wanted a later row may have one."""
    missing = isinstance(table, JsonTable) and column_of(table.columns, wanted) is None
    return (*table.columns, *wanted[:1]) if missing else table.columns


def column_of(columns: Sequence[str], wanted: Sequence[str]) -> str | None:
    """The first of ``wanted`` among the columns, else the only column that differs from the first in case alone."""
    exact = next((name for name in wanted if name in columns), None)
    if exact is not None:
        return exact
    near = ([name for name in columns if name.casefold() == each.casefold()] for each in wanted)
    return next((names[0] for names in near if len(names) == 1), None)


def find_column(
    path: Path, columns: Sequence[str], wanted: Sequence[str], what: str, advice: str, *, taken: Sequence[str] = ()
) -> str:
    """The first of ``wanted`` that the file has and is not ``taken``; see :func:`column_of`. DataError for none."""
    free = [name for name in columns if name not in taken] if taken else columns
    found = column_of(free, wanted)
    if found is not None:
        if found not in wanted:
            meant = next(name for name in wanted if name.casefold() == found.casefold())
            say_once(f"{path}: column {found!r} is taken for {meant!r}")
        return found
    near = next((hint for hint in (did_you_mean(name, free[:1000]) for name in wanted) if hint), "")
    sought = " or ".join(repr(name) for name in wanted[:3]) + (" or the like" if len(wanted) > 3 else "")
    raise DataError(f"{path}: no {what} column {sought}{near}. The columns are {names_of(columns)}; {advice}")


class DelimitedTable:
    """CSV or TSV with a header row, or with the columns that ``layout.headerless`` names.

    Attributes:
        delimiter: between the fields of a line. Where ``layout`` leaves it open: as a first line ``sep=;`` says, which
            some programs write for Excel; else a tab in .tsv; in .csv a comma, or a semicolon or a tab where the header
            has these and no comma.
        header_line: where the header is, or the first row without one. note: on titles above it, else "". is_quoted:
        whether double quotes enclose fields.
    """

    def __init__(self, path: Path, bad: BadRows, layout: Columns, *, tabs: bool) -> None:
        self.path = path
        self._bad = bad
        self._encoding = layout.encoding
        self.is_quoted = layout.quoting == "csv" or (layout.quoting is None and not tabs)
        self._suspect_quotes = layout.quoting is None and tabs
        start = next(iter(Lines(path, BadRows("skip"), layout.encoding)), "")
        self._marked = _SEPARATOR.fullmatch(start.rstrip("\r\n"))
        said = self._marked[1] if self._marked else "\t" if tabs else "," if layout.headerless else None
        self.delimiter = layout.delimiter or said or self._look_for_delimiter()
        first, titles = next(self._records(BadRows()), None), list[str]()
        if first is None:
            raise DataError(f"{path} is empty: expected a header and rows")
        if not layout.headerless:
            more = islice(self._records(BadRows("skip")), 1, None)
            first, titles = below_titles(first, more, (*layout.text, *layout.label))
        self.header_line, fields = first
        self.note = "".join(titles)
        if titles:
            say_once(f"{path}: {self.note}")
        elif len(fields) == 1 and not (layout.delimiter or said):
            self.delimiter = ","  # not one that only texts below the header have
        names = tuple(name.strip() for name in fields)
        self._has_header = not layout.headerless or column_of(names, layout.text) is not None
        self.columns = names if self._has_header else layout.headerless
        if self._has_header:
            self._check_header()

    def rows(self, names: Sequence[str]) -> Iterator[Values]:
        """As :meth:`Table.rows`; checks the number of fields, and quotes that are data."""
        wanted = [self.columns.index(name) for name in names]
        width = len(self.columns)
        for line, fields in self._records(self._bad):
            if self._has_header and line <= self.header_line:
                continue
            if len(fields) != width:
                message = f"the row has {counted(len(fields), 'field')}, expected {width}: {names_of(self.columns)}"
                if self.delimiter == "\t":
                    hint = "A tab inside a text, or a line broken in two?"
                elif width == 1:
                    hint = "A text without quotes? With one text in each line, name the file .txt"
                else:
                    hint = "A text without quotes?"
                self._bad.report(self.path, line, "ragged row", message, hint)
                continue
            values = tuple(fields[column] for column in wanted)
            if self._suspect_quotes and any(text[:1] == '"' and _QUOTED.fullmatch(text) for text in values):
                raise DataError(
                    f"{self.path}:{line}: a field is enclosed in quotes with doubled quotes inside, as CSV writers do, "
                    "in a file of tab-separated values. Give quoting='csv' (--quoting csv) to remove the quotes, "
                    "quoting='none' (--quoting none) to keep them"
                )
            yield line, values

    def _look_for_delimiter(self) -> str:
        lines = (line for line in Lines(self.path, BadRows("skip"), self._encoding) if line.strip())
        for line in islice(lines, HEAD_ROWS):  # the first may be a title without one
            bare = re.sub(r'"[^"]*"?', "", line)
            if marks := [mark for mark in ";\t" if mark in bare]:
                return "," if "," in bare else max(marks, key=bare.count)
            if "," in bare:
                break
        return ","

    def _records(self, bad: BadRows) -> Iterator[tuple[int, list[str]]]:
        lines = Lines(self.path, bad, self._encoding)
        if self.is_quoted:
            yield from self._quoted_records(lines)
            return
        for text in self._data(lines):
            text = text.removesuffix("\n").removesuffix("\r")
            if text and not (lines.damaged and lines.report_damage(lines.number, lines.number)):
                yield lines.number, text.split(self.delimiter)

    def _data(self, lines: Lines) -> Iterator[str]:
        """The lines, an empty one in place of that with the separator."""
        for text in lines:
            yield "\n" if self._marked and lines.number == 1 else text

    def _quoted_records(self, lines: Lines) -> Iterator[tuple[int, list[str]]]:
        csv.field_size_limit(max(MAX_FIELD, csv.field_size_limit()))  # the default refuses texts over 128 KiB
        try:
            reader = csv.reader(self._data(lines), delimiter=self.delimiter, strict=True)
        except (TypeError, ValueError):  # ValueError: some characters, in later versions of Python
            raise ConfigError(
                f"delimiter={self.delimiter!r} cannot separate fields that may be quoted; give one other character, or "
                "treat quotes as plain characters: quoting='none' (--quoting none)"
            ) from None
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
            why = "a carriage return without a line feed; save the file with \\n or \\r\\n at the end of lines"
        else:
            why = f"wrong quoting ({said})" + (f", found at line {end}" if end > start else "")
        return (
            f"{self.path}:{start}: {why}. Enclose a field in double quotes and double the quotes inside it, "
            "or treat quotes as plain characters: quoting='none' (--quoting none)"
        )

    def _check_header(self) -> None:
        where = f"{self.path}:{self.header_line}"
        if self._suspect_quotes and any(len(n) > 1 and n[0] == n[-1] == '"' for n in self.columns):
            raise DataError(
                f"{where}: the header is quoted: give quoting='csv' (--quoting csv) if double quotes enclose fields"
            )
        other = next((mark for mark in ";\t|," if mark != self.delimiter and mark in self.columns[0]), None)
        if len(self.columns) == 1 and other:
            raise DataError(
                f"{where}: one column, {self.columns[0]!r}: the fields seem to be separated by {other!r}, "
                f"not {self.delimiter!r}. Give delimiter={other!r} (--delimiter {_TYPED.get(other, other)})"
            )


class JsonTable:
    """JSON objects, one per line, or with ``whole`` all in one array. The columns are the keys of the first object."""

    def __init__(self, path: Path, bad: BadRows, encoding: str | None = None, *, whole: bool = False) -> None:
        self.path = path
        self._bad = bad
        self._encoding = encoding
        self._records = self._array if whole else self._lines
        first = next(self._objects(BadRows("skip")), None)
        if first is None:
            list(self._objects(BadRows()))  # names the first record that is not an object, if there is one
            raise DataError(
                f"{path} is empty: expected {'an array of objects' if whole else 'one JSON object per line'}"
            )
        self.columns = tuple(first[1])

    def rows(self, names: Sequence[str]) -> Iterator[Values]:
        """As :meth:`Table.rows`; None for a name that an object does not have."""
        for line, record in self._objects(self._bad):
            yield line, tuple(record.get(name) for name in names)

    def objects(self) -> Iterator[tuple[int, dict[str, Json]]]:
        """The whole object of each row."""
        return self._objects(self._bad)

    def _objects(self, bad: BadRows) -> Iterator[tuple[int, dict[str, Json]]]:
        for row, is_suspect, record in self._records(bad):
            if is_suspect and half_pair_at(json.dumps(record, ensure_ascii=False)) is not None:
                bad.report(self.path, row, "half a character", HALF_PAIR, REMOVE)
            elif isinstance(record, dict):
                yield row, record
            else:
                message = f'expected a JSON object such as {{"text": ...}}, got a {type(record).__name__}'
                bad.report(self.path, row, "not an object", message)

    def _lines(self, bad: BadRows) -> Iterator[tuple[int, bool, Json]]:
        """Line of each record, whether it may hold half of a surrogate pair, and the record."""
        lines = Lines(self.path, bad, self._encoding)
        for text in lines:
            if (lines.damaged and lines.report_damage(lines.number, lines.number)) or not text.strip():
                continue
            try:
                yield (
                    lines.number,
                    _HALF_PAIR.search(text) is not None,
                    json.loads(text, object_pairs_hook=unique_names),
                )
            except (ValueError, RecursionError) as error:
                why = "; give one whole object per line, or name the file .json" if lines.number == 1 else ""
                bad.report(self.path, lines.number, "not JSON", f"not a JSON object: {_explain(error)}{why}")

    def _array(self, bad: BadRows) -> Iterator[tuple[int, bool, Json]]:
        content = read_json(self.path, self._encoding)
        if not isinstance(content, list):
            got = f"an object with {shorten(content)}" if isinstance(content, dict) else f"a {type(content).__name__}"
            raise DataError(f'{self.path}: expected an array of objects, [{{"text": ...}}, ...], got {got}')
        yield from ((number, True, with_facts(record)) for number, record in enumerate(content, start=1))


def read_json(path: Path, encoding: str | None = None) -> Json:
    """The content of a file that is JSON as a whole; a DataError if it is not, or cannot be read."""
    text = read_text(path, encoding)
    try:
        content: Json = json.loads(text, object_pairs_hook=unique_names)
    except (ValueError, RecursionError) as error:
        empty = " (the file is empty)" if not text.strip() else ""
        raise DataError(
            f"{path} is not JSON: {_explain(error)}{empty}. One object per line needs the suffix .jsonl"
        ) from None
    return content


def _explain(error: Exception) -> str:
    return (
        str(error)
        if isinstance(error, (json.JSONDecodeError, RecursionError, RepeatedNameError))
        else "a number has too many digits"
    )


def _cells(column: pa.Array) -> list[Any]:
    """Values of a column; bytes that are UTF-8 are text, as some programs write it."""
    cells: list[Any] = column.to_pylist()
    if "binary" not in str(column.type):
        return cells
    return [_text_of(cell) if isinstance(cell, bytes) else cell for cell in cells]


def _text_of(cell: bytes) -> str | bytes:
    try:
        return cell.decode("utf-8")
    except UnicodeDecodeError:
        return cell


class ParquetTable:
    """A Parquet file; rows are counted from 1."""

    def __init__(self, path: Path) -> None:
        with needs_bertkit("a .parquet file"):
            import pyarrow as pa  # 0.1 s, and most files are text
            import pyarrow.parquet as pq

        self.path = path
        try:
            self._file = pq.ParquetFile(seekable(path))
            self.columns = tuple(self._file.schema_arrow.names)
        except (pa.ArrowException, *DAMAGED) as error:
            raise DataError(f"{path}: not a readable Parquet file: {error}") from None

    def rows(self, names: Sequence[str]) -> Iterator[Values]:
        """As :meth:`Table.rows`, a batch of rows in memory at a time."""
        import pyarrow as pa

        row = 0
        try:
            for batch in self._file.iter_batches(batch_size=4096, columns=list(names)):
                columns = [_cells(batch.column(batch.schema.get_field_index(name))) for name in names]
                for values in zip(*columns, strict=True):
                    row += 1
                    yield row, values
        except (pa.ArrowException, ValueError, OSError) as error:  # ValueError: wrong UTF-8, times too fine for Python
            raise DataError(f"{self.path}: cannot read the rows after row {row}: {error}") from None
