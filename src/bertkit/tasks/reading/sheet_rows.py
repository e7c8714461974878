"""Rows of a sheet of an Excel workbook, each checked to be where the sheet says it is. Needs openpyxl."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from openpyxl.worksheet._read_only import ReadOnlyWorksheet
from openpyxl.worksheet._reader import CELL_TAG, EXT_TAG, ROW_TAG, WorkSheetParser
from openpyxl.worksheet.cell_range import CellRange

#: Rows of a sheet, by the limits of Excel.
MAX_ROWS = 1 << 20


class SheetError(ValueError):
    """What is wrong with a sheet, in words for a user."""


class SharedTexts(list[str]):
    """The texts that cells name by number, without those that Python counts from the end."""

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < len(self):
            raise SheetError(f"a cell has shared text {number}, and there are {len(self)}, counted from 0")
        return super().__getitem__(number)


class SheetRows(WorkSheetParser):  # type: ignore[misc]
    """Reads a sheet and raises a SheetError where openpyxl would lose rows or cells, or misplace them."""

    row_counter: int
    merged_cells: Any

    def __init__(self, sheet: ReadOnlyWorksheet) -> None:
        book = sheet.parent
        super().__init__(
            sheet._get_source(),
            SharedTexts(sheet._shared_strings),
            data_only=book.data_only,
            epoch=book.epoch,
            date_formats=book._date_formats,
            timedelta_formats=book._timedelta_formats,
        )

    def rows(self, width: int | None) -> Iterator[tuple[int, list[Any]]]:
        """Number and values of each row that the sheet has, of the first ``width`` columns."""
        with self.source:
            for number, cells in self.parse():
                ends = max((cell["column"] for cell in cells), default=0)
                values = [None] * (ends if width is None else width)
                for cell in cells:
                    if cell["column"] <= len(values) and cell["value"] is not None and cell["data_type"] != "e":
                        values[cell["column"] - 1] = cell["value"]
                yield number, values

    @property
    def merged(self) -> list[tuple[str, int, int, int]]:
        """Once all rows are read: of each range of merged cells its name, first column and row, and last row."""
        ranges = [CellRange(each.ref) for each in self.merged_cells.mergeCell] if self.merged_cells else []
        return [(each.coord, each.min_col, each.min_row, each.max_row) for each in ranges]

    def parse_row(self, row: Any) -> tuple[int, list[dict[str, Any]]]:
        """As openpyxl's."""
        last = self.row_counter
        self._seen: set[int] = set()
        if any(child.tag == ROW_TAG for child in row):
            raise SheetError(f"a row stands inside the row after row {last}")
        said = row.get("r", last + 1)
        try:
            number = float(said)
        except ValueError:
            number = math.nan
        if not number.is_integer():
            raise SheetError(f"the row after row {last} has number {said!r:.40}, which is no whole number")
        self.row_counter = int(number)
        if self.row_counter <= last:
            raise SheetError(f"row {self.row_counter} stands after row {last}, where a greater number is expected")
        if self.row_counter > MAX_ROWS:
            raise SheetError(f"row {self.row_counter:,}: more than {MAX_ROWS:,} rows, which no sheet of Excel has")
        row.set("r", str(self.row_counter))
        return self.row_counter, [cell for cell in super().parse_row(row)[1] if cell]

    def parse_cell(self, element: Any) -> dict[str, Any]:
        """As openpyxl's; an empty one for an extension."""
        if element.tag == EXT_TAG:
            return {}
        if element.tag != CELL_TAG:
            raise SheetError(f"row {self.row_counter} has a <{element.tag.rpartition('}')[2]}> among its cells")
        name, kind = element.get("r"), element.get("t", "n")
        try:
            cell: dict[str, Any] = super().parse_cell(element)
        except SheetError:
            raise
        except Exception:  # openpyxl raises whatever a wrong cell leads it to
            value = next((child.text for child in element if child.tag.endswith("}v")), None)
            raise SheetError(
                f"cell {name} of row {self.row_counter} has {value!r:.40} as a value of type {kind!r}"
            ) from None
        if cell["row"] != self.row_counter:
            raise SheetError(f"cell {name} stands in row {self.row_counter}")
        if cell["column"] in self._seen:
            raise SheetError(f"row {self.row_counter} has two cells in column {cell['column']}")
        self._seen.add(cell["column"])
        return cell
