"""Tables that are not text: Parquet files and Excel workbooks."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, time
from pathlib import Path
from typing import Any, BinaryIO

from bertkit.errors import DataError
from bertkit.tasks.reading.lines import COMPRESSIONS, DAMAGED, open_binary

#: Line and cells of a row; Parquet may hold anything.
Values = tuple[int, tuple[Any, ...]]


def _source(path: Path) -> BinaryIO:
    """What a reader can open: the path, or the content of a compressed file."""
    if path.suffix.casefold() not in COMPRESSIONS:
        return path.open("rb")  # Arrow takes paths in UTF-8 only
    with open_binary(path) as stream:
        return io.BytesIO(stream.read())


class ParquetTable:
    """A Parquet file; rows are counted from 1."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa  # 0.1 s, and most files are text
        import pyarrow.parquet as pq

        self.path = path
        try:
            self._file = pq.ParquetFile(_source(path))
            self.columns = tuple(self._file.schema_arrow.names)
        except (pa.ArrowException, *DAMAGED) as error:
            raise DataError(f"{path}: not a readable Parquet file: {error}") from None

    def rows(self, names: Sequence[str]) -> Iterator[Values]:
        """As :meth:`bertkit.tasks.reading.tables.Table.rows`, a batch of rows in memory at a time."""
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


class ExcelTable:
    """The first sheet of an Excel workbook that is not empty; its first row that is not empty names the columns.

    Cells are read as the text that a CSV file would hold, formulas as the values that were saved with them, and rows
    have the numbers that Excel shows.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        header = next(self._cells(), None)
        if header is None:
            raise DataError(f"{path} is empty: expected a sheet with a header and rows")
        used = [place for place, name in enumerate(header[1]) if name.strip()]
        self.columns = tuple(header[1][place].strip() for place in used)
        self._places = dict(zip(self.columns, used, strict=True))

    def rows(self, names: Sequence[str]) -> Iterator[Values]:
        """As :meth:`bertkit.tasks.reading.tables.Table.rows`; empty rows are passed over."""
        places = [self._places[name] for name in names]
        cells = self._cells()
        next(cells)
        for row, values in cells:
            yield row, tuple(values[place] if place < len(values) else "" for place in places)

    def _cells(self) -> Iterator[tuple[int, list[str]]]:
        """Number and cells of each row of the sheet that has any."""
        from openpyxl import load_workbook
        from openpyxl.utils.exceptions import InvalidFileException

        row, source = 0, _source(self.path)
        try:
            book = load_workbook(source, read_only=True, data_only=True)
            try:
                for sheet in book.worksheets:
                    for row, values in enumerate(sheet.iter_rows(values_only=True), start=1):
                        if any(value is not None for value in values):
                            yield row, [_text(value) for value in values]
                    if row:
                        return
            finally:
                book.close()
        except (zipfile.BadZipFile, InvalidFileException, KeyError, ValueError, TypeError, *DAMAGED) as error:
            raise DataError(f"{self.path}: not a readable Excel workbook (.xlsx), after row {row}: {error}") from None


def _text(value: object) -> str:
    """A cell as a CSV file would hold it."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, (date, time)) else str(value)
