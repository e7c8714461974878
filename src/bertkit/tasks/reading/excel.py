"""Rows of an Excel workbook, whose XML is not trusted to be small or well-formed."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, time
from pathlib import Path
from typing import Any

from bertkit.errors import DataError
from bertkit.tasks.reading.lines import MAX_FIELD, MAX_UNPACKED, seekable

#: Rows of a sheet, by the limits of Excel.
MAX_ROWS = 1 << 20
_CHUNK = 1 << 20


class ExcelTable:
    """The first sheet of an Excel workbook that is not empty; its first row that is not empty names the columns.

    Cells are read as the text that a CSV file would hold, formulas as the values that were saved with them, and rows
    have the numbers that Excel shows. Cells behind the last column with a name are not looked at.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_sizes(path)
        header = next(self._cells(), None)
        if header is None:
            raise DataError(f"{path} is empty: expected a sheet with a header and rows")
        used = [place for place, name in enumerate(header[1]) if name.strip()]
        self.columns = tuple(header[1][place].strip() for place in used)
        self._places = dict(zip(self.columns, used, strict=True))

    def rows(self, names: Sequence[str]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """As :meth:`bertkit.tasks.reading.tables.Table.rows`; empty rows are passed over."""
        places = [self._places[name] for name in names]
        cells = self._cells(max(self._places.values(), default=0) + 1)
        next(cells)
        for row, values in cells:
            yield row, tuple(values[place] if place < len(values) else "" for place in places)

    def _cells(self, width: int | None = None) -> Iterator[tuple[int, list[str]]]:
        """Number and cells of each row of the sheet that has any, of the first ``width`` columns."""
        from openpyxl import load_workbook

        row, found = 0, False
        try:
            book = load_workbook(seekable(self.path), read_only=True, data_only=True)
            try:
                for sheet in book.worksheets:
                    sheet._shared_strings = _SharedTexts(sheet._shared_strings)  # no setting offers this
                    sheet.reset_dimensions()  # what the file says of its size may be wrong, and rows would be lost
                    for row, values in enumerate(sheet.iter_rows(values_only=True, max_col=width), start=1):
                        if row > MAX_ROWS:
                            raise DataError(f"{self.path}: more than {MAX_ROWS:,} rows, which no sheet of Excel has")
                        if any(value is not None for value in values):
                            found = True
                            yield row, [_text(value) for value in values]
                    if found:
                        return
            finally:
                book.close()
        except DataError:
            raise
        except Exception as error:  # openpyxl raises whatever a wrong file leads it to
            raise _unreadable(
                self.path, f"after row {row}: {type(error).__name__}: {error.__cause__ or error}"
            ) from None


class _SharedTexts(list[str]):
    """The texts that cells name by number, without those that Python counts from the end."""

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < len(self):
            raise IndexError(f"a cell has shared text {number}, and there are {len(self)}, counted from 0")
        return super().__getitem__(number)


def _check_sizes(path: Path) -> None:
    """DataError for a workbook that would fill the memory: by its size, or by that of a cell."""
    try:
        with seekable(path) as stream, zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            if sum(member.file_size for member in members) > MAX_UNPACKED:  # never more is unpacked than it says
                raise DataError(f"{path}: unpacked it has more than {MAX_UNPACKED >> 30} GiB; save the sheet as .csv")
            for member in members:
                if member.file_size > MAX_FIELD and _longest_text(archive, member) > MAX_FIELD:
                    raise DataError(f"{path}: {member.filename} has a text of more than {MAX_FIELD:,} bytes")
    except DataError:
        raise
    except Exception as error:  # as above: of a damaged archive, too
        raise _unreadable(path, str(error)) from None


def _longest_text(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Bytes of the longest part without the beginning of a tag, or what is over :data:`MAX_FIELD` of it."""
    longest = length = 0
    with archive.open(member) as stream:
        while length <= MAX_FIELD and (chunk := stream.read(_CHUNK)):
            first = chunk.find(b"<")
            length += len(chunk) if first < 0 else first
            longest = max(longest, length)
            if first >= 0 and length <= MAX_FIELD:
                length = len(chunk) - chunk.rfind(b"<")
    return longest


def _unreadable(path: Path, why: str) -> DataError:
    return DataError(f"{path}: not a readable Excel workbook (.xlsx): {why}")


def _text(value: object) -> str:
    """A cell as a CSV file would hold it."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, date | time) else str(value)
