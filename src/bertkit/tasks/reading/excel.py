"""Rows of an Excel workbook, whose XML is not trusted to be small or well-formed."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, time
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from bertkit.config.file_columns import Columns
from bertkit.errors import DataError, counted, did_you_mean, shorten
from bertkit.system.console import say_once
from bertkit.tasks.reading.bad_rows import sentences
from bertkit.tasks.reading.lines import DAMAGED, MAX_FIELD, MAX_UNPACKED, seekable
from bertkit.tasks.reading.splits import must_be_readable
from bertkit.tasks.reading.titles import HEAD_ROWS, find_header, note_on

_CHUNK = 1 << 20
#: How a workbook of Excel 2003 and older begins, and one with a password.
_OLD = b"\xd0\xcf\x11\xe0"
_ANY = Columns(())


class CellText(str):
    """The text of a cell, as a CSV file would hold it, with the number, date or truth value that the cell has."""

    value: float | date | time

    @staticmethod
    def of(value: Any) -> str:
        """The text of any cell; one without a value beside it where the cell has text."""
        if isinstance(value, str) or not isinstance(value, int | float | date | time):
            return _text(value)
        made = CellText(_text(value))
        made.value = value
        return made


class ExcelTable:
    """A sheet of an Excel workbook: the one that ``layout`` names, else the first one that is not empty.

    The header is found as :mod:`bertkit.tasks.reading.titles` says. Cells are read as the text that a CSV file would
    hold, formulas as the values that were saved with them, and rows have the numbers that Excel shows. Of merged cells
    only the first has the value; a message says so. Cells to the right of the last named column are ignored.

    Attributes:
        note: what was chosen of several sheets, and which rows are titles, as a sentence; else "".
    """

    def __init__(self, path: Path, layout: Columns = _ANY) -> None:
        self.path = path
        self._wanted, self._sheet, self._others = layout.sheet, "", list[str]()
        self._merged: list[tuple[str, int, int, int]] = []
        must_be_readable(path)
        _check_sizes(path)
        first = list(islice(self._cells(), HEAD_ROWS))
        if not first:
            which = "" if layout.sheet is None else f" in sheet {self._sheet!r}"
            raise DataError(f"{path} is empty{which}: expected a sheet with a header and rows")
        self.header_row, header = first[find_header(first, (*layout.text, *layout.label))]
        parts = [f"sheet {self._sheet!r} is read, of {len(self._others) + 1}"] if self._others else []
        parts += note_on(self.header_row, [row for row, _ in first])
        self.note = ", ".join(parts)
        names = [_text(value).strip() for value in header]
        used = [place for place, name in enumerate(names) if name]
        self.columns = tuple(names[place] for place in used)
        self._places = dict(zip(self.columns, used, strict=True))
        self._width = max(used, default=0) + 1
        self._tell_unnamed([cells for row, cells in first if row > self.header_row], used)
        if self.note:
            others = f"; choose another with --sheet: {shorten(self._others)}"
            say_once(f"{path}: {self.note}{'' if layout.sheet or not self._others else others}")

    def rows(self, names: Sequence[str]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """As :meth:`bertkit.tasks.reading.tables.Table.rows`; empty rows are passed over."""
        places = [self._places[name] for name in names]
        for row, values in self._cells(self._width):
            if row > self.header_row:
                yield row, tuple(CellText.of(values[place]) if place < len(values) else "" for place in places)
        self._tell_merged()

    def _tell_unnamed(self, below: Sequence[Sequence[Any]], used: Sequence[int]) -> None:
        """Report columns that have values in the first rows but no name."""
        filled = {place for cells in below for place, cell in enumerate(cells) if cell is not None}
        lost = sorted(filled.difference(used))
        if lost:
            is_one = len(lost) == 1
            say_once(
                f"{self.path}: {counted(len(lost), 'column')} without a name in row {self.header_row} "
                f"{'is' if is_one else 'are'} left out; give {'it' if is_one else 'each'} a name to keep "
                f"{'it' if is_one else 'them'}"
            )

    def _tell_merged(self) -> None:
        """Say which cells below the header are merged."""
        ranges = [name for name, column, _, last in self._merged if last > self.header_row and column <= self._width]
        if ranges:
            more = f" and {counted(len(ranges) - 1, 'other range')}" if len(ranges) > 1 else ""
            say_once(
                f"{self.path}: the cells {ranges[0]}{more} are merged: the value stands in the first cell, the others "
                "are read as empty. To give each row its value, unmerge them in Excel and fill them"
            )

    def _cells(self, width: int | None = None) -> Iterator[tuple[int, list[Any]]]:
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
                for sheet in self._chosen(reader.wb.worksheets):
                    place, row = f"sheet {sheet.title!r}", 0
                    self._sheet = sheet.title
                    self._others = [each.title for each in reader.wb.worksheets if each is not sheet]
                    rows = SheetRows(sheet)
                    for row, values in rows.rows(width):
                        if any(value is not None for value in values):
                            found = True
                            yield row, values
                    if found:
                        self._merged = rows.merged
                        return
            finally:
                reader.archive.close()
        except DataError:
            raise
        except SheetError as error:
            raise _unreadable(self.path, error, place) from None
        except Exception as error:  # openpyxl raises whatever a wrong file leads it to
            raise _unreadable(self.path, error, f"{place}, after row {row}" if row else place) from error

    def _chosen(self, sheets: Sequence[Any]) -> Sequence[Any]:
        if self._wanted is None:
            return sheets
        names = [sheet.title for sheet in sheets]
        numbers = [number for number, name in enumerate(names) if name == self._wanted]
        numbers = numbers or [n for n, name in enumerate(names) if name.casefold() == self._wanted.casefold()]
        if not numbers and self._wanted.isdecimal() and 1 <= int(self._wanted) <= len(names):
            numbers = [int(self._wanted) - 1]
        if not numbers:
            raise DataError(
                f"{self.path} has no sheet {self._wanted!r}{did_you_mean(self._wanted, names)}; its sheets are "
                f"{shorten(names, limit=20)}"
            )
        return [sheets[numbers[0]]]


def _check_kind(path: Path, stream: BinaryIO) -> None:
    """DataError for an old workbook, or one with a password, which have the same container."""
    if stream.read(len(_OLD)) != _OLD:
        stream.seek(0)
        return
    if "EncryptedPackage".encode("utf-16-le") in stream.read(MAX_UNPACKED):
        raise DataError(
            f"{path} is protected by a password. Remove it in Excel (File, Info, Protect Workbook, Encrypt with "
            "Password: leave it empty), and save the workbook"
        )
    raise DataError(f"{path} is a workbook of Excel 2003 or older (.xls). Save it as .xlsx, or the sheet as .csv")


def _check_sizes(path: Path) -> None:
    """DataError for a workbook that would fill the memory: by its size, or by that of a cell."""
    try:
        with seekable(path) as stream:
            _check_kind(path, stream)
            archive = zipfile.ZipFile(stream)
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
    why = sentences(_explain(error), "Save it again in Excel or LibreOffice, or save the sheet as .csv")
    return DataError(f"{where}: {why}")


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
