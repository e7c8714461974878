"""Workbooks as people have them: titles above the header, several sheets; and what is no workbook."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook, load_workbook

from bertkit.config.file_columns import Columns
from bertkit.errors import ConfigError, DataError
from bertkit.tasks import csv_task, load_split, splits_of
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.excel import ExcelTable
from bertkit.tasks.reading.tables import open_table
from bertkit.tasks.reading.text_rows import read_texts
from bertkit.tasks.registry import task_from_dict, task_to_dict

HEAD = ("text", "label", "stars")
DATA = [("good film", "yes", 5), ("bad film", "no", 1), ("so so", "yes", 3)]


def book(path: Path, **sheets: list[tuple[Any, ...]]) -> Path:
    made = Workbook()
    made.remove(made.active)
    for name, rows in sheets.items():
        sheet = made.create_sheet(name.replace("_", " "))
        for number, row in enumerate(rows, start=1):
            for column, value in enumerate(row, start=1):
                sheet.cell(number, column, value)
    made.save(path)
    return path


@pytest.mark.parametrize(
    ("above", "header"),
    [
        ([], HEAD),
        ([("Reviews of 2024",)], HEAD),
        ([("Reviews",), (), ("made by Ann",)], HEAD),
        ([(None, "Reviews"), (None, None, "from the shop")], HEAD),
        ([("Reviews", date(2024, 5, 1)), ()], HEAD),
        ([("Reviews", 2024), ("by", "Ann"), ()], HEAD),
        ([("Reviews",), ("made on", date(2024, 5, 1)), (), ()], HEAD),
        ([("Reviews",), (), ("made on", date(2024, 5, 1))], HEAD),
        ([("Reviews",), ("region", "north"), ("from", 2023)], HEAD),
        ([("Reviews", 2024), (), ("region", "north")], HEAD),
        ([(), ("Reviews",)], ("text", "label")),
        ([], ("text", 2023, 2024)),
        ([], ("text", None, "label")),
    ],
)
def test_titles_above_the_header_are_found(above: list[Any], header: tuple[Any, ...], tmp_path: Path) -> None:
    path = book(tmp_path / "a.xlsx", data=[*above, header, *DATA])
    table = ExcelTable(path)
    assert table.header_row == len(above) + 1
    assert table.columns == tuple(str(name) for name in header if name is not None)
    first = next(iter(table.rows(["text"])))
    assert first == (len(above) + 2, ("good film",)), "rows have the numbers that Excel shows"
    assert ("above it taken for a title" in table.note) == any(above)


@pytest.mark.parametrize(
    "rows",
    [
        [("text",), ("one",), (), ("two",)],
        [("text", "label"), (), ("one", "yes", "a remark")],
        [("text", "label"), ("one", "yes", "a remark", "and another")],
        [("text",), ("one", 5)],
        [("text", "label"), ("Reviews",), ("one", "yes")],
    ],
)
def test_a_header_is_no_title(rows: list[Any], tmp_path: Path) -> None:
    path = book(tmp_path / "a.xlsx", data=rows)
    assert ExcelTable(path, Columns(("text",))).header_row == 1
    assert ExcelTable(path, Columns(("text",))).note == ""


@pytest.mark.parametrize(
    "rows",
    [
        [("a", "b")],
        [("two", "a remark"), ("three",)],
        [("two", "a remark"), ("three",), ("four", "another"), ("five",), ("six",)],
    ],
)
def test_a_remark_beside_a_row_makes_it_no_header(rows: list[Any], tmp_path: Path) -> None:
    path = book(tmp_path / "a.xlsx", data=[("notes",), ("one",), *rows])
    assert (ExcelTable(path).header_row, ExcelTable(path).columns) == (1, ("notes",))
    wide = book(tmp_path / "b.xlsx", data=[("text",), ("one",), *[("two", "a remark")] * 9])
    assert [row.text for row in read_texts(wide, Columns(()))[1]] == ["one", *["two"] * 9]
    assert ExcelTable(wide).header_row == 3  # control: without a usual name it is a table below two titles


def test_merged_cells_are_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = book(tmp_path / "a.xlsx", data=[("Reviews",), HEAD, *DATA])
    made = load_workbook(path)
    made.active.merge_cells("A1:C1")  # a title
    made.active.merge_cells("E3:E5")  # a column without a name
    made.save(path)

    def told() -> str:
        list(ExcelTable(path).rows(["text"]))
        list(ExcelTable(path).rows(["text"]))
        return capsys.readouterr().err

    assert "are merged" not in told()
    made.active.merge_cells("B3:B5")
    made.active.merge_cells("A4:A5")
    made.save(path)
    said = told()
    assert said.count("are merged") == 1
    assert re.search(
        r"a\.xlsx: the cells (B3:B5|A4:A5) and 1 other range are merged: the value stands in the first", said
    )
    assert [values for _, values in ExcelTable(path).rows(["label"])] == [("yes",), ("",), ("",)]


def test_a_row_with_the_columns_that_are_named_is_the_header(tmp_path: Path) -> None:
    rows = [("Reviews", "2024", "shop", "x"), ("body", "Label"), *DATA]
    path = book(tmp_path / "a.xlsx", data=rows)
    assert ExcelTable(path, Columns((), label=())).header_row == 1
    task = csv_task(path, text="body", label="label")
    assert task.columns.text == ("body",)
    assert "the header is row 2; 1 row above it taken for a title" in task.notes
    assert [(row.text, row.row) for row in load_split(task, path, "train")] == [
        ("good film", 3),
        ("bad film", 4),
        ("so so", 5),
    ]


def test_a_sheet_is_chosen_by_name_or_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = book(tmp_path / "a.xlsx", notes=[("nothing", "here"), ("a", "b")], my_data=[HEAD, *DATA], empty=[])
    for sheet in ("my data", "My Data", 2, "2"):
        task = csv_task(path, sheet=sheet, text="text")
        assert len(load_split(task, path, "train")) == 3
        assert "sheet 'my data' is read, of 3" in task.notes
    assert task_from_dict(task_to_dict(task)) == task
    assert "sheet" not in task_to_dict(csv_task(book(tmp_path / "b.xlsx", data=[HEAD, *DATA])))["columns"]
    capsys.readouterr()
    assert ExcelTable(path).columns == ("nothing", "here")
    assert "a.xlsx: sheet 'notes' is read, of 3; choose another with --sheet: " in capsys.readouterr().err
    with pytest.raises(DataError, match=r"no sheet 'my dat' .did you mean 'my data'.*'notes', 'my data', 'empty'"):
        csv_task(path, sheet="my dat")
    for sheet in ("4", "0", "-1"):
        with pytest.raises(DataError, match=f"no sheet '{sheet}'; its sheets are 'notes', 'my data', 'empty'"):
            csv_task(path, sheet=sheet)
    with pytest.raises(DataError, match="is empty in sheet 'empty'"):
        csv_task(path, sheet=3)
    (tmp_path / "c.csv").write_text("text,label\na,1\n")
    with pytest.raises(ConfigError, match=r"c\.csv is no Excel workbook and has no sheets"):
        csv_task(tmp_path / "c.csv", sheet="my data")


def test_a_number_that_is_a_name_is_the_name(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    made = Workbook()
    made.active.title = "2"
    made.active.append(("two", "x"))
    made.create_sheet("1").append(("one", "x"))
    made.save(path)
    assert ExcelTable(path, Columns((), sheet="1")).columns == ("one", "x")


def test_what_has_the_name_of_a_workbook_and_is_none(tmp_path: Path) -> None:
    container = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)
    path = tmp_path / "a.xlsx"
    path.write_bytes(container + "EncryptedPackage".encode("utf-16-le") + bytes(100))
    with pytest.raises(DataError, match=r"a\.xlsx is protected by a password\. Remove it in Excel"):
        csv_task(path)
    path.write_bytes(container + "Workbook".encode("utf-16-le"))
    with pytest.raises(DataError, match=r"a\.xlsx is a workbook of Excel 2003 or older"):
        csv_task(path)
    lock = tmp_path / "~$a.xlsx"
    lock.write_bytes(b"\x03Ann" + bytes(161))
    with pytest.raises(DataError, match=r"the lock file that Excel keeps beside an open workbook; give a\.xlsx"):
        csv_task(lock)
    with pytest.raises(DataError, match="lock file"):
        open_table(lock, Columns(("text",)), BadRows())


def test_lock_files_in_a_folder_are_passed_over(tmp_path: Path) -> None:
    book(tmp_path / "train.xlsx", data=[HEAD, *DATA])
    (tmp_path / "~$train.xlsx").write_bytes(b"\x03Ann" + bytes(161))
    assert [path.name for path in splits_of(csv_task(tmp_path), tmp_path).values()] == ["train.xlsx"]


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = book(tmp_path / "a.xlsx", data=[("text", "label", "label "), *DATA])
    with pytest.raises(DataError, match="names column 'label' more than once"):
        csv_task(path)


def test_columns_without_a_name_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As pandas writes an index: below an empty header."""
    path = book(tmp_path / "a.xlsx", data=[(None, *HEAD), *((number, *row) for number, row in enumerate(DATA))])
    assert ExcelTable(path).columns == HEAD
    assert "1 column without a name in row 1 is left out; give it a name to keep it" in capsys.readouterr().err
    ExcelTable(book(tmp_path / "b.xlsx", data=[HEAD, *DATA]))
    assert "without a name" not in capsys.readouterr().err
