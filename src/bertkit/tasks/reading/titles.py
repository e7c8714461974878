"""Title rows above the header of a table, in workbooks and in what Excel saves of them as CSV.

The header is the first row that is not empty and no title. A title is a row with a single cell, or a row above an empty
one, where the header that would follow within :data:`HEAD_ROWS` rows is text alone in more cells, as most rows below it
have; what stands between them, such as the name and the value of a filter, is part of it. A row that has the columns
that were asked for is the header in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import dropwhile, islice
from typing import Any

from bertkit.errors import counted

#: Rows with cells among which the header is.
HEAD_ROWS = 20
_NUMBER = re.compile(r"[+-]?[\d.,]*\d[\d.,]*%?")


def find_header(rows: Sequence[tuple[int, list[Any]]], named: Sequence[str]) -> int:
    """Which of the first rows with cells is the header; ``named``: columns that were asked for."""
    names = [{_plain(value).casefold() for value in values} for _, values in rows]
    wanted = {name.casefold() for name in named if name}
    if wanted and any(wanted & found for found in names):
        return max(range(len(rows)), key=lambda place: (len(wanted & names[place]), -place))
    filled = [[value for value in values if value is not None and _plain(value)] for _, values in rows]
    place = 0
    while True:
        gaps = [n for n in range(place, len(rows) - 1) if rows[n][0] + 1 < rows[n + 1][0]]  # rows above an empty one
        after = place + 1 if len(filled[place]) == 1 else gaps[0] + 1 if gaps else len(rows)
        below = _header_below(filled, place, after)
        if below is None:
            return place
        place = below


def _header_below(filled: Sequence[Sequence[Any]], place: int, after: int) -> int | None:
    """Of the rows from ``after``, the header if those from ``place`` are titles; it has more cells than all of them.

    A row of two cells, as of a name and a value, is a title too where a wider header follows.
    """
    found = []
    above = max(map(len, filled[place:after]))
    for number in range(after, len(filled)):
        if (width := len(filled[number])) <= above:
            continue
        below = [len(cells) > above for cells in filled[number + 1 :]]
        # most: else they are rows of the header at `place`, one of which has a remark
        if all(isinstance(value, str) for value in filled[number]) and any(below) and 2 * sum(below) >= len(below):
            found.append(number)
        above = width
    return next((number for number in found if len(filled[number]) > 2), found[0] if found else None)


def note_on(header: int, rows: Sequence[int], unit: str = "row") -> list[str]:
    """What is said of titles above a header, if there are some: ``rows`` are the numbers of the first rows."""
    titles = sum(row < header for row in rows)
    return [f"the header is {unit} {header}; {counted(titles, 'row')} above it taken for a title"] if titles else []


def below_titles(
    first: tuple[int, list[str]], more: Iterable[tuple[int, list[str]]], named: Sequence[str]
) -> tuple[tuple[int, list[str]], list[str]]:
    """The header of delimited text, and what is said of titles above it.

    ``first`` is its first record. It may be a title if a field of it is empty, as where Excel has saved a sheet, or if
    it has one field and the records below have more: those asked for, or all of them as many.
    """
    if all(field.strip() for field in first[1]) and len(first[1]) > 1:
        return first, []
    rows = [(line, fields) for line, fields in (first, *islice(more, 2 * HEAD_ROWS)) if any(map(str.strip, fields))]
    if not rows:
        return first, []
    cells = [(line, [_cell(field) for field in fields]) for line, fields in rows[:HEAD_ROWS]]
    if len(first[1]) == 1 and not _under_one_title(cells, named):
        return first, []
    header = rows[find_header(cells, named)]
    return header, note_on(header[0], [line for line, _ in rows], "line")


def _under_one_title(rows: Sequence[tuple[int, list[Any]]], named: Sequence[str]) -> bool:
    """Whether the first rows, of one field, are titles of a table, not a header above texts with delimiters in them."""
    wanted = {name.casefold() for name in named if name}
    table = [cells for _, cells in dropwhile(lambda row: len(row[1]) == 1, rows)]
    if any(wanted & {_plain(value).casefold() for value in cells} for _, cells in rows):
        return True
    texts = table and all(isinstance(value, str) for value in table[0]) and len(set(table[0])) == len(table[0])
    return bool(texts) and len(table) > 2 and len({len(cells) for cells in table}) == 1


def _cell(field: str) -> str | float | None:
    """A field as a cell of a workbook has it: a number, text or nothing."""
    plain = field.strip()
    return 0.0 if _NUMBER.fullmatch(plain) else plain or None


def _plain(value: Any) -> str:
    return "" if value is None else str(value).strip()
