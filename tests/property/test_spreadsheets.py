"""Tables for Excel: openpyxl, another reader than the writer's, and our own reader find what was written."""

from __future__ import annotations

import csv
import re
import tracemalloc
import zipfile
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bertkit.errors import DataError
from bertkit.inference import row_files, workbook
from bertkit.inference.predict_files import joined
from bertkit.inference.row_files import write_rows
from bertkit.inference.workbook import MAX_CHARACTERS, MAX_COLUMNS, Workbook, cell_text
from bertkit.system.untrusted_files import Json
from bertkit.tasks import Columns
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.tables import open_table
from bertkit.tasks.reading.text_rows import read_texts

#: What a spreadsheet would change if it could: formulas, numbers, dates, markup, controls, halves of pairs.
TRAPS = ["=1+1", "+49 30", "-x", "@a", "007", "1e5", "3/4", "12345678901234567890", "<b>&amp;", "_x0041_", "a_x000D_b"]
TRAPS += [
    "\x07bell",
    "two\nlines",
    "a\r\nb",
    " blanks ",
    "tab\tbed",
    "\ud800",
    "\uffff",
    "😀",
    "'quoted'",
    'say "hi"',
    "a;b",
]
TEXTS = st.one_of(st.sampled_from(TRAPS), st.text(max_size=20))
NUMBERS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**15) + 1, 10**15 - 1))
ROWS = st.lists(st.tuples(TEXTS, TEXTS, st.one_of(st.none(), NUMBERS, st.booleans())), min_size=1, max_size=8)
NAMES = ("id", "text", "score")


def written(rows: list[tuple[Any, ...]], out: Path, **options: Any) -> None:
    write_rows((dict(zip(NAMES, row, strict=True)) for row in rows), out, {"id": {}}, **options)


def shown(text: str) -> str:
    return cell_text(text)[0]


def cells_of(path: Path) -> list[list[Any]]:
    book = openpyxl.load_workbook(path)
    found = [[cell.value for cell in row] for sheet in book for row in sheet.iter_rows()]
    assert not any(cell.data_type == "f" for sheet in book for row in sheet.iter_rows() for cell in row)
    return found


@settings(max_examples=30, deadline=None)
@given(rows=ROWS)
@example(rows=[(trap, trap, 0.5) for trap in TRAPS])
def test_a_workbook_holds_what_was_written(rows: list[tuple[str, str, Json]], tmp_path_factory: Any) -> None:
    out = tmp_path_factory.mktemp("book") / "rows.xlsx"
    written(rows, out)
    header, *found = cells_of(out)
    assert header == list(NAMES)
    padded = [row for row in found if any(value is not None for value in row)]
    expected = [[shown(a) or None, shown(b) or None, number] for a, b, number in rows]
    assert padded == [row for row in expected if any(value is not None for value in row)]
    assert [[type(value) for value in row] for row in padded] == [
        [type(value) for value in row] for row in expected if any(value is not None for value in row)
    ]
    ours = [values for _, values in open_table(out, Columns(("text",)), BadRows()).rows(("id", "text"))]
    assert ours == [(shown(a), shown(b)) for a, b, number in rows if a or b or number is not None]


@settings(max_examples=30, deadline=None)
@given(rows=ROWS)
@example(rows=[(trap, trap, 0.5) for trap in TRAPS])
def test_a_csv_for_excel_holds_what_was_written(rows: list[tuple[str, str, Json]], tmp_path_factory: Any) -> None:
    out = tmp_path_factory.mktemp("csv") / "rows.csv"
    written(rows, out, excel=True)
    assert out.read_bytes().startswith(b"\xef\xbb\xbfid;text;score\r\n")
    with out.open(encoding="utf-8-sig", newline="") as file:
        found = list(csv.reader(file, delimiter=";"))[1:]
    ours = open_table(out, Columns(("text",)), BadRows()).rows(NAMES)
    assert [list(values) for _, values in ours] == [cells for cells in found if cells]
    for (a, b, number), cells in zip(rows, found, strict=True):
        for text, cell in ((a, cells[0]), (b, cells[1])):
            plain = not text.startswith(tuple("=+-@\t")) or re.fullmatch(r"[+-]?\d[\d.,]*", text)
            assert cell == (shown(text) if plain else f"'{shown(text)}")
        if isinstance(number, float):
            assert "." not in cells[2]
            assert float(cells[2].replace(",", ".")) == number
        else:
            assert cells[2] == ("" if number is None else str(number))


def test_text_of_the_input_is_text_and_numbers_are_numbers(tmp_path: Path) -> None:
    rows = [{"id": "007", "n": 7, "score": 0.25, "rank": 1, "huge": 10**20, "none": float("inf")}]
    write_rows(rows, tmp_path / "out.xlsx", {"id": {}, "n": {}})
    assert cells_of(tmp_path / "out.xlsx")[1] == ["007", 7, 0.25, 1, str(10**20), "inf"]


def test_cells_of_a_workbook_and_of_parquet_are_written_again(tmp_path: Path) -> None:
    """Numbers, dates and truth values as such, and what Excel could not hold as text."""
    day, moment, hour = date(2024, 2, 29), datetime(2024, 2, 29, 6, 30, 15), time(6, 30)
    cells = {"text": "good", "id": "007", "trap": "=1+1", "n": 3, "x": 0.25, "yes": True}
    cells |= {"day": day, "moment": moment, "hour": hour}
    book = openpyxl.Workbook()
    book.active.append(list(cells))
    book.active.append(list(cells.values()))
    book.active["C2"].data_type = "s"
    book.save(tmp_path / "in.xlsx")
    odd = {"old": date(1899, 5, 1), "zone": datetime(2024, 1, 2, tzinfo=UTC), "large": 10**17}
    pq.write_table(pa.table({name: [value] for name, value in (cells | odd).items()}), tmp_path / "in.parquet")
    for name in ("in.xlsx", "in.parquet"):
        taken, rows = read_texts(tmp_path / name, Columns(()))
        out = tmp_path / f"{name}.xlsx"
        write_rows((joined(row, {"label": "x"}, taken) for row in rows), out, taken)
        found = dict(zip(*cells_of(out), strict=True))
        assert {key: found[key] for key in cells} == {**cells, "day": datetime(2024, 2, 29)}
        assert found["label"] == "x"
    assert [found[key] for key in odd] == ["1899-05-01", "2024-01-02T00:00:00+00:00", str(10**17)]
    taken, rows = read_texts(tmp_path / "in.xlsx", Columns(()))
    write_rows((joined(row, {}, taken) for row in rows), tmp_path / "out.csv", taken)
    assert (tmp_path / "out.csv").read_text().splitlines()[1] == (
        "good,007,=1+1,3,0.25,True,2024-02-29T00:00:00,2024-02-29T06:30:15,06:30:00"
    )


@pytest.mark.parametrize("ending", [".xlsx", ".csv"])
def test_a_text_that_is_too_long_is_cut_with_a_mark_and_counted(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, out = ["x" * MAX_CHARACTERS, "x" * (MAX_CHARACTERS + 1), "😀" * MAX_CHARACTERS], tmp_path / f"out{ending}"
    write_rows([{"text": text} for text in texts], out, excel=True)
    lines = (
        cells_of(out)[1:]
        if ending == ".xlsx"
        else csv.reader(out.read_text("utf-8-sig").splitlines()[1:], delimiter=";")
    )
    whole, *cut = [row[0] for row in lines]
    assert whole == texts[0]
    for given_text, found in zip(texts[1:], cut, strict=True):
        kept, mark = found.split(" [... cut, of ")
        assert given_text.startswith(kept)
        assert mark == f"{len(given_text):,} characters]"
        assert MAX_CHARACTERS - 1 <= len(found.encode("utf-16-le")) // 2 <= MAX_CHARACTERS
    assert "WARNING: 2 cells" in capsys.readouterr().err
    write_rows([{"text": text} for text in texts], tmp_path / "whole.csv")  # the control
    assert max(map(len, (tmp_path / "whole.csv").read_text("utf-8").splitlines())) > MAX_CHARACTERS


@pytest.mark.parametrize(("limit", "sheets"), [({"rows_per_sheet": 4}, 4), ({}, 1)])
def test_more_rows_than_a_sheet_has_go_to_further_sheets(tmp_path: Path, limit: dict[str, int], sheets: int) -> None:
    with (tmp_path / "a.xlsx").open("wb") as file, Workbook(file, ["n"], **limit) as book:
        for number in range(10):
            book.write([number])
    found = openpyxl.load_workbook(tmp_path / "a.xlsx")
    assert found.sheetnames == ["rows", "rows 2", "rows 3", "rows 4"][:sheets]
    columns = [[cell.value for cell in sheet["A"]] for sheet in found]
    assert all(column[0] == "n" for column in columns)
    assert [value for column in columns for value in column[1:]] == list(range(10))


def test_a_sheet_ends_before_the_archive_needs_what_excel_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbook, "MAX_SHEET", 500)
    with (tmp_path / "a.xlsx").open("wb") as file, Workbook(file, ["n"]) as book:
        for number in range(40):
            book.write([number])
    with zipfile.ZipFile(tmp_path / "a.xlsx") as archive:
        assert not any(member.extra for member in archive.infolist())
    found = openpyxl.load_workbook(tmp_path / "a.xlsx")
    assert len(found.sheetnames) > 1
    assert [cell.value for sheet in found for cell in sheet["A"][1:]] == list(range(40))


def test_more_columns_than_a_sheet_has_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"16,385 columns .* \.csv, \.parquet or \.jsonl"):
        write_rows([{f"p_{n}": 1 for n in range(MAX_COLUMNS + 1)}], tmp_path / "out.xlsx")
    assert list(tmp_path.iterdir()) == []


def test_rows_are_not_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_files, "ROW_GROUP", 200)

    def peak(count: int) -> int:
        tracemalloc.start()
        write_rows(({"text": f"row {number}", "score": 0.5} for number in range(count)), tmp_path / f"{count}.xlsx")
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(100)  # imports
    assert peak(2_000) < 1.2 * peak(1_000)


def test_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.xlsx", "b.xlsx"):
        write_rows([{"text": "good"}], tmp_path / name)
    assert (tmp_path / "a.xlsx").read_bytes() == (tmp_path / "b.xlsx").read_bytes()
