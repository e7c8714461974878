"""Rows of an Excel workbook, whose XML is not trusted to be small or well-formed."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, time
from pathlib import Path
from typing import Any

from bertkit.errors import DataError
from bertkit.tasks.reading.lines import DAMAGED, MAX_FIELD, MAX_UNPACKED, seekable

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
        from openpyxl.reader.excel import ExcelReader

        from bertkit.tasks.reading.sheet_rows import SheetError, SheetRows

        place, row, found = "", 0, False
        try:
            reader = ExcelReader(seekable(self.path), read_only=True, data_only=True)
            try:
                reader.read()
                for sheet, part in reader.parser.find_sheets():
                    if part.target not in reader.valid_files:  # openpyxl passes over it
                        raise SheetError(f"it lacks the sheet {sheet.name!r} ({part.target})")
                for sheet in reader.wb.worksheets:
                    place, row = f"sheet {sheet.title!r}", 0
                    for row, values in SheetRows(sheet).rows(width):
                        if any(value is not None for value in values):
                            found = True
                            yield row, [_text(value) for value in values]
                    if found:
                        return
            finally:
                reader.archive.close()
        except DataError:
            raise
        except SheetError as error:
            raise _unreadable(self.path, error, place) from None
        except Exception as error:  # openpyxl raises whatever a wrong file leads it to
            raise _unreadable(self.path, error, f"{place}, after row {row}" if row else place) from error


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
        raise _unreadable(path, error) from error


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


def _unreadable(path: Path, error: Exception, place: str = "") -> DataError:
    where = f"{path}: not a readable Excel workbook (.xlsx)" + (place and f": {place}")
    return DataError(f"{where}: {_explain(error)}. Save it again in Excel or LibreOffice, or save the sheet as .csv")


def _explain(error: Exception) -> str:
    """In plain English what an error of openpyxl, or of what it is made of, says of a file."""
    from xml.etree.ElementTree import ParseError

    from bertkit.tasks.reading.sheet_rows import SheetError

    if isinstance(error.__cause__, Exception):  # openpyxl wraps some in a general one
        return _explain(error.__cause__)
    words = str(error)
    if isinstance(error, SheetError):
        return words
    if isinstance(error, ParseError):
        return f"its XML is damaged ({words})"
    if type(error).__module__.startswith("defusedxml"):
        return "its XML declares entities, which no workbook needs and which may fill the memory"
    if isinstance(error, zipfile.BadZipFile) and "not a zip file" in words:
        return "it is no zip archive, as workbooks are; is it an old .xls file, or one with a password?"
    if isinstance(error, KeyError):
        return f"it lacks a part that it names, {str(error.args[0]).removeprefix('There is no item named ')}"
    if isinstance(error, (zipfile.BadZipFile, NotImplementedError, RuntimeError, *DAMAGED)):
        return f"it is damaged or cut short ({words})"
    return "what it says of its sheets, styles or properties does not follow the format"


def _text(value: object) -> str:
    """A cell as a CSV file would hold it."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, date | time) else str(value)
