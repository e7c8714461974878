"""Rows to files of JSON lines, CSV, Parquet or Excel: each part is written once, in the file's own format.

An unfinished file can be continued: :class:`Done` says how far it is, and what lies behind that is cut off.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO

from bertkit.errors import ConfigError, DataError, counted, needs_bertkit
from bertkit.inference.row_cells import Row, own_name, table_of
from bertkit.inference.workbook import MAX_ROWS, Workbook, cell_text, excel_value, tell_cut
from bertkit.system.atomic_files import disk_guard, held_lock, new_file, sync_file, sync_folder
from bertkit.system.console import say
from bertkit.system.untrusted_files import Json
from bertkit.tasks.reading.excel import CellText
from bertkit.tasks.reading.file_rows import Samples
from bertkit.tasks.run_rows import to_jsonl

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 4096
_MOST_INT64 = 2**63 - 1
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_MISFIT = "a .parquet file cannot hold this; choose a name that ends in .jsonl"
NO_ROWS = "the input has no rows, so there is nothing to predict"


@dataclass
class Done:
    """How far an unfinished file is: its rows, how many of these were cut or hold no text, and its bytes.

    ragged: the first rows of a table have not the last of its columns. quoted, cut: cells of a CSV file for
    Excel with an apostrophe of ours, and cells that were too long.
    """

    rows: int = 0
    truncated: int = 0
    empty: int = 0
    size: int = 0
    columns: list[str] = field(default_factory=list)
    ragged: bool = False
    quoted: int = 0
    cut: int = 0

    def count(self, rows: Iterable[Row], taken: Collection[str]) -> None:
        """Add rows."""
        cut, blank = own_name("truncated", taken), own_name("empty", taken)
        for row in rows:
            self.rows += 1
            self.truncated += row.get(cut) is True
            self.empty += row.get(blank) is True


class RowFile:
    """A file of JSON lines that becomes ``out`` when it is finished; ``taken``: the columns of the input."""

    def __init__(self, out: Path, partial: Path, taken: Samples, done: Done) -> None:
        self.out, self.partial, self.taken, self.done = out, partial, taken, done

    def append(self, rows: Sequence[Row], *, advice: str = "Free some space and try again") -> None:
        """Write some rows; ``advice`` is for a full disk. What a format cannot hold is a DataError."""
        lines = self._encoded(rows)
        guard = disk_guard(self.partial.parent, len(lines), what=self.partial.name, advice=advice)
        with guard, self.partial.open("ab") as file:
            file.write(lines)
        self.done.size += len(lines)
        self.done.count(rows, self.taken)

    def finish(self) -> None:
        """Make the whole file of the rows written."""
        sync_file(self.partial)
        self._publish()
        self.partial.unlink(missing_ok=True)
        sync_folder(self.out.parent)

    def _encoded(self, rows: Sequence[Row]) -> bytes:
        return to_jsonl(rows).encode("utf-8")

    def _publish(self) -> None:
        self.partial.replace(self.out)


class TableFile(RowFile):
    """A file whose rows have the same columns.

    These are those of the input, ``text``, ``text_pair`` (of pairs), ``predicted``, ``probability`` (of that label),
    then one column ``p_LABEL`` for each label, ``truncated`` and ``empty``; last what the first row lacks.
    """

    def finish(self) -> None:
        if not self.done.rows:
            raise DataError(NO_ROWS)
        super().finish()

    def _cells(self, rows: Sequence[Row]) -> dict[str, list[Json]]:
        table, done = table_of(rows, self.taken), self.done
        new = [name for name in dict.fromkeys((*table, *self.taken)) if name not in done.columns]
        done.ragged |= bool(new and done.rows)
        done.columns += new
        none: list[Json] = [None] * len(rows)
        return {name: list(map(_cell, table.get(name, none))) for name in done.columns}


class DelimitedFile(TableFile):
    """CSV or TSV."""

    start = b""

    @property
    def delimiter(self) -> str:
        """Between the cells of a line."""
        return _DELIMITERS[self.out.suffix]

    def _encoded(self, rows: Sequence[Row]) -> bytes:
        return self._lines(zip(*self._cells(rows).values(), strict=True))

    def _header(self) -> Sequence[Json]:
        return self.done.columns

    def _lines(self, rows: Iterable[Sequence[Json]]) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=self.delimiter).writerows(rows)
        return text.getvalue().encode("utf-8")

    def _publish(self) -> None:
        with new_file(self.out) as draft, draft.open("wb") as file, self.partial.open("rb") as lines:
            file.write(self.start + self._lines([self._header()]))
            if self.done.ragged:
                self._fill_up(lines, file)
            else:
                shutil.copyfileobj(lines, file)

    def _fill_up(self, lines: BinaryIO, file: BinaryIO) -> None:
        """Copy rows, each with a cell for every column."""
        usual = csv.field_size_limit(2**31 - 1)  # of the process; the default refuses texts over 128 KiB
        try:
            text = io.TextIOWrapper(lines, "utf-8", newline="")
            reader = csv.reader(text, delimiter=self.delimiter)
            width = len(self.done.columns)
            while part := list(islice(reader, ROW_GROUP)):
                file.write(self._lines([*row, *[""] * (width - len(row))] for row in part))
        finally:
            csv.field_size_limit(usual)


class ExcelCsvFile(DelimitedFile):
    """CSV as an Excel opens it whose decimals have a comma (German, French): with a BOM, semicolons, and 0,5.

    Only our numbers get the comma. Text is as in a workbook, but what Excel would take for a formula gets an apostrophe
    in front.
    """

    start, delimiter = codecs.BOM_UTF8, ";"

    def finish(self) -> None:
        super().finish()
        if self.done.quoted:
            say(
                f"{counted(self.done.quoted, 'cell')} of {self.out} got an apostrophe in front, so that Excel takes "
                "none for a formula; a .xlsx file needs none"
            )
        tell_cut(self.done.cut, self.out)
        if self.done.rows >= MAX_ROWS:
            say(f"WARNING: Excel shows the first {MAX_ROWS - 1:,} rows of {self.out}; a .xlsx file has further sheets")

    def _cells(self, rows: Sequence[Row]) -> dict[str, list[Json]]:
        table = super()._cells(rows)
        return {name: [self._typed(name, value) for value in cells] for name, cells in table.items()}

    def _header(self) -> Sequence[Json]:
        return [self._typed(name, name) for name in self.done.columns]

    def _typed(self, name: str, value: Json) -> Json:
        if isinstance(value, float) and name not in self.taken:
            return repr(value).replace(".", ",")
        if not isinstance(value, str):
            return value
        text, was_cut = cell_text(value)
        self.done.cut += was_cut
        if not text.startswith(_FORMULA) or _NUMBER.fullmatch(text):
            return text
        self.done.quoted += 1
        return f"'{text}"


class WorkbookFile(TableFile):
    """Excel's .xlsx; unfinished JSON lines, a list of cells each.

    Numbers, dates and truth values of the input are such again where its format has them (Excel, Parquet, JSON).
    """

    def _encoded(self, rows: Sequence[Row]) -> bytes:
        columns = [
            [excel_value(value.value if isinstance(value, CellText) else value) for value in cells]
            for cells in self._cells(rows).values()
        ]
        lines = (json.dumps(row) for row in zip(*columns, strict=True))
        return "".join(f"{line}\n" for line in lines).encode("ascii")

    def _publish(self) -> None:
        names = self.done.columns
        with (
            self.partial.open("rb") as lines,
            new_file(self.out) as draft,
            draft.open("wb") as file,
            Workbook(file, names) as book,
        ):
            for line in lines:
                cells = json.loads(line)
                book.write([*cells, *[None] * (len(names) - len(cells))])
        tell_cut(book.num_cut, self.out)


class ParquetFile(TableFile):
    """Parquet; unfinished a stream of Arrow tables, one a part."""

    def __init__(self, out: Path, partial: Path, taken: Samples, done: Done) -> None:
        super().__init__(out, partial, taken, done)
        with needs_bertkit("a .parquet file"):
            import pyarrow.parquet  # noqa: F401
        for name, values in taken.items():
            self._array(name, [_cell(value) for value in values.values()])

    def _array(self, name: str, cells: Sequence[Json]) -> pa.Array:
        import pyarrow as pa

        try:
            wide = any(type(cell) is int and cell > _MOST_INT64 for cell in cells)
            return pa.array(cells, pa.uint64() if wide else None)
        except (pa.ArrowException, OverflowError) as error:
            raise DataError(f"column {name!r}: {error}: {_MISFIT}") from None

    def _encoded(self, rows: Sequence[Row]) -> bytes:
        import pyarrow as pa

        table = pa.table({name: self._array(name, cells) for name, cells in self._cells(rows).items()})
        stream = io.BytesIO()
        with pa.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table)
        return stream.getvalue()

    def _publish(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            schema = self._schema()
            with (
                new_file(self.out) as draft,
                draft.open("wb") as file,  # Arrow's paths are UTF-8
                pq.ParquetWriter(file, schema) as writer,
            ):
                waiting = [schema.empty_table()]
                for part in self._parts():
                    waiting.append(_widened(part, schema))
                    if sum(map(len, waiting)) >= ROW_GROUP:
                        writer.write_table(pa.concat_tables(waiting, promote_options="permissive"))
                        del waiting[1:]
                if len(waiting) > 1:
                    writer.write_table(pa.concat_tables(waiting, promote_options="permissive"))
        except pa.ArrowException as error:
            raise DataError(f"{error}: {_MISFIT}") from None

    def _schema(self) -> pa.Schema:
        """That of all parts; a column with a number over that of int64 is of uint64, which Arrow does not choose."""
        import pyarrow as pa

        schemas = [part.schema for part in self._parts()]
        wide = {each.name for schema in schemas for each in schema if each.type == pa.uint64()}
        fields = pa.unify_schemas(schemas, promote_options="permissive")
        return pa.schema([each.with_type(pa.uint64()) if each.name in wide else each for each in fields])

    def _parts(self) -> Iterator[pa.Table]:
        import pyarrow as pa

        with self.partial.open("rb") as file:
            while file.tell() < self.done.size:
                yield pa.ipc.open_stream(file).read_all()


def _widened(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """With columns of int64 as uint64 where the schema has that."""
    import pyarrow as pa

    for place, own in enumerate(part.schema):
        wanted = schema.field(own.name)
        if wanted.type == pa.uint64() and own.type == pa.int64():
            part = part.set_column(place, wanted, part.column(place).cast(wanted.type))
    return part


_CLASSES: Mapping[str, type[RowFile]] = {
    ".jsonl": RowFile,
    ".csv": DelimitedFile,
    ".tsv": DelimitedFile,
    ".parquet": ParquetFile,
    ".xlsx": WorkbookFile,
}
FORMATS = tuple(_CLASSES)
#: What Excel takes for the beginning of a formula, or of none if a number follows.
_FORMULA = ("=", "+", "-", "@", "\t")
_NUMBER = re.compile(r"[+-]?\d[\d.,]*")


def row_file(out: Path, partial: Path, taken: Samples, done: Done, *, excel: bool = False) -> RowFile:
    """The unfinished file for a name: a table, as its ending says; any other name gets JSON lines.

    excel: CSV for an Excel whose decimals have a comma.
    """
    if excel and out.suffix == ".csv":
        return ExcelCsvFile(out, partial, taken, done)
    return _CLASSES.get(out.suffix, RowFile)(out, partial, taken, done)


def write_rows(rows: Iterable[Row], out: Path, taken: Samples = MappingProxyType({}), *, excel: bool = False) -> int:
    """Write rows, of predictions or of anything; the file appears when it is complete. Returns their number.

    taken: the columns of the input, as :func:`bertkit.tasks.reading.text_rows.read_texts` gives them.
    """
    file = row_file(out, out.with_name(f".{out.name}.rows"), taken, Done(), excel=excel)
    source = iter(rows)
    try:
        file.partial.write_bytes(b"")
        while part := list(islice(source, ROW_GROUP)):
            file.append(part)
        if not file.done.rows:
            raise DataError(NO_ROWS)
        file.finish()
    finally:
        file.partial.unlink(missing_ok=True)
    return file.done.rows


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Held while a new file is made; ConfigError if it exists, or another process is making it."""
    busy = f"another process is writing {out}; wait for it, or choose another name for the output"
    with held_lock(out.with_name(f".{out.name}.lock"), busy):
        if out.exists():
            raise ConfigError(f"{out} exists already; remove it or choose another name")
        yield


def _cell(value: Json | tuple[float | None, ...]) -> Json:
    """A value as the cell of a file: text for lists and objects."""
    if isinstance(value, tuple):
        return "|".join("" if share is None else f"{share:.4f}" for share in value)
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "|".join(map(str, value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
