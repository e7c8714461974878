"""Excel workbooks (.xlsx), written as a stream: no row is held in memory.

The format is SpreadsheetML (ECMA-376, part 1), with the text of a cell in the cell itself (``inlineStr``). A cell is a
number or date only where the caller gives one; text is text whatever it begins with, so that there are no formulas.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO, Self
from xml.sax.saxutils import escape
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from bertkit.errors import DataError, counted
from bertkit.system.console import escape_controls, say
from bertkit.system.untrusted_files import Json

#: What a sheet of Excel holds: rows, the header among them, columns, and UTF-16 units of a cell's text.
MAX_ROWS, MAX_COLUMNS, MAX_CHARACTERS = 1 << 20, 1 << 14, 32_767
#: Bytes of a sheet's XML after which another sheet begins: beyond 2 GiB a zip archive has fields that Excel refuses.
MAX_SHEET = 1 << 30
#: Whole numbers that a cell holds exactly: Excel keeps 15 digits.
_EXACT = 10**15
#: No XML character, not even as a reference.
_NO_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")
#: What Excel reads as an escaped character; cut in two runs of text, it stays what it is.
_ESCAPED = re.compile(r"(?<=_x[0-9a-fA-F]{2})(?=[0-9a-fA-F]{2}_)")

_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = (
    f'{_XML}<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2" '
    'activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><sheetData>'
)
_FOOT = (
    '</sheetData><ignoredErrors><ignoredError sqref="A1:XFD1048576" numberStoredAsText="1"/></ignoredErrors>'
    "</worksheet>"
)
#: Formats of cells: 0 as Excel likes (numbers), 1 text, which stays text when it is edited, and those of _STYLE_OF.
_STYLES = (
    f'{_XML}<styleSheet xmlns="{_MAIN}"><fonts count="1"><font><sz val="11"/><name val="Calibri"/></font></fonts>'
    '<fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill>'
    '</fills><borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
    '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs><cellXfs count="5">'
    '<xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>'
    '<xf numFmtId="49" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/>'
    '<xf numFmtId="14" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/>'
    '<xf numFmtId="22" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/>'
    '<xf numFmtId="21" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/></cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
)

_STYLE_OF = {"date": 2, "moment": 3, "time": 4}
#: Day 0 of Excel; it counts a day before March 1900 that there was not.
_DAY_0, _FIRST_DAY = datetime(1899, 12, 30), 61


class Workbook:
    """Rows below a header, in as many sheets as they need, each with the header; use it in a ``with`` block.

    num_cut: cells whose text was too long; they end with a mark.
    """

    def __init__(self, file: BinaryIO, columns: Sequence[str], *, rows_per_sheet: int = MAX_ROWS) -> None:
        if len(columns) > MAX_COLUMNS:
            raise DataError(
                f"{len(columns):,} columns are more than the {MAX_COLUMNS:,} that a sheet of Excel has; choose a name "
                "that ends in .csv, .parquet or .jsonl"
            )
        self.num_cut = 0
        self._archive = ZipFile(file, "w", ZIP_DEFLATED)
        self._columns, self._letters = columns, [_letters(place) for place in range(len(columns))]
        self._limit, self._sheets = rows_per_sheet, 0
        self._sheet: IO[bytes] | None = None
        self._rows = self._bytes = 0

    def __enter__(self) -> Self:
        self._next_sheet()
        return self

    def write(self, cells: Sequence[Json]) -> None:
        """Add a row: None or "" leaves a cell empty, true, false and numbers are such, and the rest is text.

        Dates are as :func:`excel_value` gives them.
        """
        if self._rows >= self._limit or self._bytes >= MAX_SHEET:
            self._next_sheet()
        self._write(cells)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sheet is not None:
            self._end_sheet()
        if kind is None:
            self._write_parts()
        self._archive.close()

    def _next_sheet(self) -> None:
        if self._sheet is not None:
            self._end_sheet()
        self._sheets, self._rows, self._bytes = self._sheets + 1, 0, 0
        self._sheet = self._archive.open(_member(f"xl/worksheets/sheet{self._sheets}.xml"), "w")
        self._sheet.write(_HEAD.encode())
        self._write(self._columns)

    def _end_sheet(self) -> None:
        assert self._sheet is not None
        self._sheet.write(_FOOT.encode())
        self._sheet.close()
        self._sheet = None

    def _write(self, cells: Sequence[Json]) -> None:
        assert self._sheet is not None
        self._rows += 1
        places = zip(self._letters, cells, strict=True)
        inner = "".join(self._cell(f"{letters}{self._rows}", value) for letters, value in places)
        line = f'<row r="{self._rows}">{inner}</row>'.encode()
        self._sheet.write(line)
        self._bytes += len(line)

    def _cell(self, place: str, value: Json) -> str:
        if value is None or value == "":
            return ""
        if isinstance(value, bool):
            return f'<c r="{place}" t="b"><v>{value:d}</v></c>'
        if (isinstance(value, float) and math.isfinite(value)) or (isinstance(value, int) and abs(value) < _EXACT):
            return f'<c r="{place}"><v>{value!r}</v></c>'
        if isinstance(value, dict):
            (style, days), *_ = value.items()
            return f'<c r="{place}" s="{_STYLE_OF[style]}"><v>{days!r}</v></c>'
        text, was_cut = cell_text(str(value))
        self.num_cut += was_cut
        runs = _ESCAPED.split(escape(text))
        marked = [f'<t xml:space="preserve">{run}</t>' for run in runs]
        inner = marked[0] if len(marked) == 1 else "".join(f"<r>{run}</r>" for run in marked)
        return f'<c r="{place}" s="1" t="inlineStr"><is>{inner}</is></c>'

    def _write_parts(self) -> None:
        numbers = range(1, self._sheets + 1)
        names = "".join(
            f'<sheet name="rows{"" if number == 1 else f" {number}"}" sheetId="{number}" r:id="r{number}"/>'
            for number in numbers
        )
        sheets = "".join(
            f'<Relationship Id="r{number}" Type="{_RELATIONS}/worksheet" Target="worksheets/sheet{number}.xml"/>'
            for number in numbers
        )
        types = "".join(
            f'<Override PartName="/xl/{part}.xml" ContentType="{_TYPE}.{kind}+xml"/>'
            for part, kind in [
                ("workbook", "sheet.main"),
                ("styles", "styles"),
                *((f"worksheets/sheet{number}", "worksheet") for number in numbers),
            ]
        )
        relations = f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships">'
        parts = {
            "xl/workbook.xml": f'{_XML}<workbook xmlns="{_MAIN}" xmlns:r="{_RELATIONS}"><bookViews><workbookView/>'
            f"</bookViews><sheets>{names}</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": f'{relations}<Relationship Id="s" Type="{_RELATIONS}/styles" '
            f'Target="styles.xml"/>{sheets}</Relationships>',
            "xl/styles.xml": _STYLES,
            "_rels/.rels": f'{relations}<Relationship Id="w" Type="{_RELATIONS}/officeDocument" '
            'Target="xl/workbook.xml"/></Relationships>',
            "[Content_Types].xml": f'{_XML}<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" '
            f'ContentType="application/xml"/>{types}</Types>',
        }
        for name, content in parts.items():
            self._archive.writestr(_member(name), content)


def excel_value(value: Any) -> Json:
    """A value as :meth:`Workbook.write` takes it: of a date or time its days by what it is; else text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, time) and value.tzinfo is None:
        return {"time": (datetime.combine(_DAY_0, value) - _DAY_0) / timedelta(1)}
    if isinstance(value, date) and getattr(value, "tzinfo", None) is None and not getattr(value, "nanosecond", 0):
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        days = (datetime(*moment.timetuple()[:6], moment.microsecond) - _DAY_0) / timedelta(1)
        if days >= _FIRST_DAY:
            return {"date": int(days)} if days.is_integer() else {"moment": days}
    return value.isoformat() if isinstance(value, date | time) else str(value)


def cell_text(text: str) -> tuple[str, bool]:
    r"""``text`` as a cell of Excel holds it, and whether it was too long: then it is cut and ends with a mark.

    Control characters and what XML lacks are escapes such as ``\x07``; CR LF is LF.
    """
    text = _NO_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", escape_controls(text.replace("\r\n", "\n")))
    if len(text) * 2 <= MAX_CHARACTERS or len(units := text.encode("utf-16-le")) <= 2 * MAX_CHARACTERS:
        return text, False
    mark = f" [... cut, of {len(text):,} characters]"
    return units[: 2 * (MAX_CHARACTERS - len(mark))].decode("utf-16-le", "ignore") + mark, True


def tell_cut(num_cut: int, out: Path) -> None:
    """Say how many cells of a file were cut, if any."""
    if num_cut:
        say(
            f"WARNING: {counted(num_cut, 'cell')} of {out} had more than {MAX_CHARACTERS:,} characters, which Excel "
            "cannot hold, and end with a mark where they were cut; .jsonl, .parquet and plain .csv keep them whole"
        )


def _letters(place: int) -> str:
    """The name of a column: A to Z, AA ..."""
    name = ""
    while place >= 0:
        name = chr(ord("A") + place % 26) + name
        place = place // 26 - 1
    return name


def _member(name: str) -> ZipInfo:
    """A part of the archive, whose date does not depend on the day."""
    info = ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = ZIP_DEFLATED
    return info
