"""Tables as people have them: other delimiters and encodings, Excel, JSON arrays, wide headers, many bad rows."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import re
import time
import zipfile
from datetime import date
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl import Workbook, load_workbook
from openpyxl.styles import Font

from bertkit.errors import ConfigError, DataError
from bertkit.tasks import TASKS, Columns, csv_task, load_split, splits_of
from bertkit.tasks.reading import excel
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.excel import ExcelTable
from bertkit.tasks.reading.tables import DelimitedTable, open_table
from bertkit.tasks.reading.text_rows import read_texts

IMDB = TASKS["imdb"]
TEXTS = ["Zoë’s café, naïve", "a; b", "plain", "more"]


def write(path: Path, separator: str = ",", encoding: str = "utf-8") -> Path:
    rows = "".join(f'"{text}"{separator}{label}\r\n' for text, label in zip(TEXTS, "0101", strict=True))
    path.write_bytes(f"text{separator}label\r\n{rows}".encode(encoding))
    return path


def texts(path: Path, **options: str) -> list[str]:
    task = csv_task(path, **options)  # type: ignore[arg-type]
    assert task.labels == ("0", "1")
    return [row.text for row in load_split(task, path, "train")]


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;\r"])
@pytest.mark.parametrize("quoting", ["csv", "none"])
def test_a_first_line_may_say_the_separator(
    first: str, quoting: Literal["csv", "none"], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.csv"
    path.write_text(f"{first}\ntext,label;label\na,b;good\n;bad\nb;bad\n", encoding="utf-8")
    task = csv_task(path, text="text,label", quoting=quoting, on_error="skip")
    rows = load_split(task, path, "train", on_error="skip")
    assert [(row.text, row.row) for row in rows] == [("a,b", 3), ("b", 5)]
    assert rows.skipped[0].where == f"{path}:4"
    path.write_text(f"{first}\ntext|label\na|good\nb|bad\n", encoding="utf-8")
    assert csv_task(path, delimiter="|").columns.text == ("text",)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_column_in_another_case_is_taken_and_said(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"rows.{suffix}"
    as_csv = suffix == "csv"
    path.write_text("TEXT,Label\na,1\nb,0\n" if as_csv else '{"TEXT": "a", "Label": 1}\n{"TEXT": "b", "Label": 0}\n')
    for split in ("train", "test"):
        assert [(row.text, row.label) for row in load_split(IMDB, path, split)] == [("a", 1), ("b", 0)]  # type: ignore[arg-type]
    assert [row.text for row in read_texts(path, Columns(text=("text",)))[1]] == ["a", "b"]
    told = capsys.readouterr().err
    assert told.count(f"{path}: column 'TEXT' is taken for 'text'") == 1
    assert told.count(f"{path}: column 'Label' is taken for 'label'") == 1
    path.write_text("TEXT,Text,label\na,b,1\n" if as_csv else '{"TEXT": "a", "Text": "b", "label": 1}\n')
    with pytest.raises(DataError, match=r"no text column 'text'.*\['TEXT', 'Text', 'label'\]"):
        load_split(IMDB, path, "train")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_delimiter_of_a_csv_file_is_read_off_its_header(separator: str, tmp_path: Path) -> None:
    assert texts(write(tmp_path / "train.csv", separator)) == TEXTS
    (tmp_path / "quoted.csv").write_bytes(b'"a;b",label\r\nx,1\r\ny,0\r\n')
    assert csv_task(tmp_path / "quoted.csv", text="a;b").columns.text == ("a;b",)


def test_a_semicolon_that_was_detected_is_told(tmp_path: Path) -> None:
    assert "fields are separated by ';', as in the header" in csv_task(write(tmp_path / "train.csv", ";")).notes
    assert not any("separated" in note for note in csv_task(write(tmp_path / "train.csv")).notes)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252", "utf-16-le"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    path = write(tmp_path / "train.csv", ";", encoding)
    assert texts(path) == TEXTS
    if encoding in ("utf-8-sig", "utf-16"):  # a byte order mark tells
        assert texts(path, encoding="cp1252") == TEXTS
    assert texts(path, encoding=encoding) == TEXTS


def test_an_encoding_is_suggested_where_the_file_is_not_utf8(tmp_path: Path) -> None:
    path = write(tmp_path / "train.csv", ",", "cp1252")
    with pytest.raises(DataError, match=r"train\.csv:2: byte 4 of the line, 0xeb, is not UTF-8.*--encoding cp1252"):
        csv_task(path, encoding="utf-8")
    with pytest.raises(DataError, match=r":2: byte 4 of the line, 0xeb, is not ascii"):
        csv_task(write(path, ",", "cp1252"), encoding="ascii")
    path.write_bytes(b"text,label\na\x81,1\n")
    with pytest.raises(DataError, match=r"0x81, is not cp1252.*--encoding latin-1"):
        csv_task(path, encoding="cp1252", text="text", label="label")
    with pytest.raises(ConfigError, match=r"unknown encoding 'cp-1252x' \(did you mean 'cp1252'\?\)"):
        csv_task(path, encoding="cp-1252x")


def test_lines_of_text_in_an_encoding(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes("Zoë\r\nb\n".encode("cp1252"))
    assert [row.text for row in read_texts(path, Columns(text=("text",), encoding="cp1252"))[1]] == ["Zoë", "b"]
    path.write_bytes(b"\xef\xbb\xbffirst\n")
    assert [row.text for row in read_texts(path, Columns(text=("text",)))[1]] == ["first"]


def workbook(path: Path, *rows: tuple[object, ...]) -> Path:
    book = Workbook()
    book.active.title = "empty"  # type: ignore[union-attr]
    sheet = book.create_sheet("data")
    for row in rows:
        sheet.append(row)
    book.save(path)
    return path


def test_excel(tmp_path: Path) -> None:
    rows = [(TEXTS[0], None, 1), (None, None, None), (date(2024, 5, 1), None, 0.0), (7, None, "1")]
    path = workbook(tmp_path / "reviews.xlsx", ("text", None, "label"), *rows)
    task = csv_task(path)
    examples = load_split(task, path, "train")
    assert task.labels == ("0", "1")
    assert [(row.text, row.label, row.row) for row in examples] == [
        (TEXTS[0], 1, 2),
        ("2024-05-01T00:00:00", 0, 4),
        ("7", 1, 5),
    ]
    assert [row.text for row in read_texts(path, task.columns)[1]] == [row.text for row in examples]
    assert splits_of(task, path) == {"train": path}


@pytest.mark.parametrize("content", [b"", b"no workbook", b"PK\x03\x04 and no more"])
def test_a_damaged_workbook_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "train.xlsx"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"train\.xlsx: not a readable Excel workbook"):
        load_split(IMDB, path, "train")


def changed(path: Path, member: str, old: bytes, new: bytes) -> Path:
    """A workbook with other content in one of its files."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    assert old in content[member]
    content[member] = content[member].replace(old, new, 1)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def shared(path: Path) -> Path:
    """A workbook whose first text is in the list of shared texts, as Excel writes all of them."""
    kind = b"application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"
    part = b'<Override PartName="/xl/sharedStrings.xml" ContentType="' + kind + b'"/>'
    changed(path, "[Content_Types].xml", b"</Types>", part + b"</Types>")
    changed(path, SHEET, b't="inlineStr"><is><t>text</t></is>', b't="s"><v>0</v>')
    with zipfile.ZipFile(path, "a") as archive:
        space = b"http://schemas.openxmlformats.org/spreadsheetml/2006/main"
        archive.writestr(STRINGS, b'<sst xmlns="' + space + b'"><si><t>text</t></si></sst>')
    return path


SHEET, STRINGS = "xl/worksheets/sheet2.xml", "xl/sharedStrings.xml"
#: Every entity is ten of the one before.
LAUGHS = b"".join(b'<!ENTITY l%d "%s">' % (n, b"&l%d;" % (n - 1) * 10) for n in range(1, 10))


@pytest.mark.parametrize(
    ("member", "old", "new", "words"),
    [
        (SHEET, b"<v>0</v>", b"<v>99</v>", "sheet 'data': a cell has shared text 99"),  # that is not there
        (SHEET, b"<v>0</v>", b"<v>-1</v>", "a cell has shared text -1"),  # which is no count from the end
        (SHEET, b"<v>0</v>", b"<v>x</v>", "cell A1 of row 1 has 'x' as a value of type 's'"),
        (SHEET, b"<v>1</v>", b"<v>one</v>", "cell B2 of row 2 has 'one' as a value of type 'n'"),
        (SHEET, b"</row></sheetData>", b"</sheetData>", "sheet 'data', after row 2: its XML is damaged"),
        (SHEET, b'r="A2"', b'r="2A"', "cell 2A of row 2"),
        (SHEET, b'r="A2"', b'r="A7"', "cell A7 stands in row 2"),
        (SHEET, b'r="A2"', b'r="B2"', "row 2 has two cells in column 2"),
        (SHEET, b"</sheetData>", b"", "its XML is damaged"),
        (SHEET, b'row r="3"', b'row r="2"', "sheet 'data': row 2 stands after row 2"),
        (SHEET, b'row r="2"', b'row r="4"', "cell A2 stands in row 4"),
        (SHEET, b'row r="1"', b'row r="0"', "sheet 'data': row 0 stands after row 0"),
        (SHEET, b'row r="2"', b'row r="two"', "the row after row 1 has number 'two'"),
        (SHEET, b'row r="2"', b'row r="2e999"', "the row after row 1 has number '2e999'"),
        (SHEET, b'<row r="2">', b'<row r="2"><x/>', "row 2 has a <x> among its cells"),
        (STRINGS, b"</si>", b"", "its XML is damaged"),
        (STRINGS, b"<sst", b'<!DOCTYPE x [<!ENTITY l0 "ha">' + LAUGHS + b"]><sst", "its XML declares entities"),
        ("xl/workbook.xml", b"<sheets>", b"<sheets", "its XML is damaged"),
        ("xl/workbook.xml", b'sheetId="2"', b'sheetId="two"', "its sheets, styles or properties"),
        ("xl/styles.xml", b"</fonts>", b"", "its XML is damaged"),
        ("xl/_rels/workbook.xml.rels", b"/xl/worksheets/sheet1.xml", b"/xl/sheet9.xml", "it lacks the sheet 'empty'"),
        ("xl/_rels/workbook.xml.rels", b'Id="rId1"', b'Id="rId99"', "it lacks a part that it names, rId1"),
    ],
)
def test_a_malformed_workbook_is_refused(member: str, old: bytes, new: bytes, words: str, tmp_path: Path) -> None:
    path = shared(workbook(tmp_path / "train.xlsx", ("text", "label"), ("good", 1), ("bad", 0)))
    assert [row.label for row in load_split(IMDB, path, "train")] == [1, 0]
    if b"ENTITY" in new:
        changed(path, member, b">text<", b">&l9;<")
    with pytest.raises(DataError, match=r"train\.xlsx: not a readable Excel workbook \(\.xlsx\)") as caught:
        load_split(IMDB, changed(path, member, old, new), "train")
    assert words in str(caught.value)
    assert not re.search(r"[A-Z]\w+(Error|Forbidden)|for more details", str(caught.value))


def test_no_row_of_a_workbook_is_lost(tmp_path: Path) -> None:
    """openpyxl passes over a row that stands too late, and gives the cells of one inside another an own place."""
    rows = b'<row r="2">%s</row><row r="3">%s</row>'
    good, bad = b'<c r="A%d"><v>1</v></c><c r="B%d"><v>1</v></c>', b'<c r="A%d"><v>2</v></c><c r="B%d"><v>0</v></c>'
    both = rows % (good % (2, 2), bad % (3, 3))
    for name, found, message in (
        ("right", both, ""),
        ("decimal", both.replace(b'row r="3"', b'row r="3.0"'), ""),
        ("extended", both.replace(b"</row>", b"<extLst/></row>"), ""),
        (
            "turned",
            both.replace(b"2</v>", b"1</v>")[len(both) // 2 :] + both[: len(both) // 2],
            "row 2 stands after row 3",
        ),
        ("nested", both.replace(b"</row>", b"", 1) + b"</row>", "a row stands inside the row after row 3"),
    ):
        path = workbook(tmp_path / f"{name}.xlsx", ("text", "label"))
        changed(path, SHEET, b"</sheetData>", found + b"</sheetData>")
        if not message:
            assert [(row.text, row.label) for row in load_split(IMDB, path, "train")] == [("1", 1), ("2", 0)]
            continue
        with pytest.raises(DataError, match=rf"{name}\.xlsx: .* sheet 'data': {message}"):
            load_split(IMDB, path, "train")


def test_a_workbook_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shared(workbook(tmp_path / "train.xlsx", ("text", "label"), ("good", 1), ("bad", 0)))
    monkeypatch.setattr(excel, "MAX_FIELD", 50_000)
    monkeypatch.setattr(excel, "_CHUNK", 7_001)
    for member, old in ((STRINGS, b"text"), (SHEET, b"<sheetData>"), ("docProps/app.xml", b"Microsoft Excel")):
        size = 49_000 - len(old)
        changed(path, member, old, old + b" " * size)
        assert [row.label for row in load_split(IMDB, path, "train")] == [1, 0]
        changed(path, member, old + b" " * size, old + b" " * (size + 2_000))
        with pytest.raises(DataError, match=rf"train\.xlsx: {member} has a text of more than 50,000 bytes"):
            load_split(IMDB, path, "train")
        changed(path, member, old + b" " * (size + 2_000), old)
    monkeypatch.setattr(excel, "MAX_UNPACKED", 3_000)
    with pytest.raises(DataError, match=r"train\.xlsx: unpacked it has more than .* save the sheet as \.csv"):
        load_split(IMDB, path, "train")


def test_only_the_columns_of_the_header_are_read(tmp_path: Path) -> None:
    path = workbook(tmp_path / "train.xlsx", ("text", "label"), ("good", 1), ("bad", 0))
    changed(path, SHEET, b"</row></sheetData>", b'<c r="XFD3"><v>1</v></c></row></sheetData>')
    table = ExcelTable(path)
    assert [len(cells) for _, cells in table._cells(2)] == [2, 2, 2]
    assert list(table.rows(["label"])) == [(2, ("1",)), (3, ("0",))]
    assert [len(cells) for _, cells in table._cells()] == [2, 2, 16_384]  # the control


def test_what_a_sheet_says_of_its_size_is_not_believed(tmp_path: Path) -> None:
    path = workbook(tmp_path / "train.xlsx", ("text", "label"), ("good", 1), ("bad", 0))
    changed(path, SHEET, b'ref="A1:B3"', b'ref="A1:A2"')
    assert [row.label for row in load_split(IMDB, path, "train")] == [1, 0]
    changed(path, SHEET, b'<row r="3"', b'<row r="99999999999"')
    with pytest.raises(DataError, match="more than 1,048,576 rows"):
        load_split(IMDB, path, "train")


@pytest.mark.parametrize("suffix", [".xz", ".gz", ".bz2"])
def test_a_workbook_that_cannot_be_unpacked_is_refused(suffix: str, tmp_path: Path) -> None:
    pack = {".xz": lzma.compress, ".gz": gzip.compress, ".bz2": bz2.compress}[suffix]
    path = tmp_path / f"train.xlsx{suffix}"
    for content in (pack(b"PK" * 1000)[:-9], b"no archive"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"train\.xlsx.*: not a readable Excel workbook"):
            load_split(IMDB, path, "train")


def test_a_sheet_of_cells_without_values_is_no_data(tmp_path: Path) -> None:
    path = workbook(tmp_path / "train.xlsx", ("text", "label"), ("good", 1))
    book = load_workbook(path)
    book["empty"]["B3"].font = Font(bold=True)
    book.save(path)
    assert [(row.text, row.row) for row in load_split(IMDB, path, "train")] == [("good", 2)]


def test_bad_rows_of_a_workbook(tmp_path: Path) -> None:
    path = workbook(tmp_path / "train.xlsx", ("text", "label"), ("good", 1), ("", 0), ("bad", None))
    with pytest.raises(DataError, match=r"2 rows .*:\n.*xlsx:3: column 'text' is empty\n.*xlsx:4: .*no label"):
        load_split(IMDB, path, "train")
    with pytest.raises(DataError, match="is empty: expected a sheet"):
        load_split(IMDB, workbook(path), "train")
    with pytest.raises(DataError, match="column 'text' more than once"):
        load_split(IMDB, workbook(path, ("text", "text", "label"), ("a", "b", 1)), "train")


def test_a_json_array_of_objects(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    path.write_text(json.dumps([{"text": text, "label": label} for text, label in zip(TEXTS, "0101", strict=True)]))
    assert texts(path) == TEXTS
    path.write_text('[{"text": "a", "label": 1}, 5, {"text": "b \\ud83d", "label": 1}]')
    with pytest.raises(
        DataError, match=r"json: object 2: expected a JSON object .*got a int\n.*json: object 3: .*surrogate pair"
    ):
        load_split(IMDB, path, "train")
    path.write_text('{"text": "a", "label": 1}')
    with pytest.raises(DataError, match=r"expected an array of objects.*got an object with 'text', 'label'"):
        load_split(IMDB, path, "train")
    path.write_text('{"text": "a", "label": 1}\n{"text": "b", "label": 1}\n')
    with pytest.raises(DataError, match=r"is not JSON: Extra data.*the suffix \.jsonl"):
        load_split(IMDB, path, "train")


def test_a_file_of_an_older_kind_comes_before_json_and_excel(tmp_path: Path) -> None:
    for name in ("train.csv", "train.json", "train.xlsx", "dev.xlsx"):
        (tmp_path / name).touch()
    assert {split: path.name for split, path in splits_of(IMDB, tmp_path).items()} == {
        "train": "train.csv",
        "dev": "dev.xlsx",
    }


def test_all_bad_rows_are_counted_and_the_first_ten_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("text,label\ngood,1\n" + "".join(f"text {row},{row}\n" for row in range(5, 1005)) + "a\n,0\nx,\n")
    with pytest.raises(DataError) as caught:
        load_split(IMDB, path, "train")
    told = str(caught.value).splitlines()
    assert told[0] == f"{path}: 1,003 rows cannot be used:"
    assert [line.split(": ")[0] for line in told[1:11]] == [f"  {path}:{row}" for row in range(3, 13)]
    assert told[11:] == [
        "  and 993 more",
        "Correct the file, or leave bad rows out with on_error='skip' (--on-error skip)",
    ]


def test_missing_labels_and_empty_texts_of_a_users_file_come_in_one_error(tmp_path: Path) -> None:
    path = tmp_path / "reviews.csv"
    path.write_text("text,label\ngood,1\nbad,0\n,1\nx,\n")
    with pytest.raises(DataError, match=r"2 rows cannot be used:\n.*:4: column 'text' is empty\n.*:5: .*has no label"):
        csv_task(path)
    assert csv_task(path, on_error="skip").labels == ("0", "1")


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_number_of_ten_thousand_digits_is_a_bad_row(kind: str, tmp_path: Path) -> None:
    digits = "1" * 10_000
    path = tmp_path / f"train.{kind}"
    rows = [f'{{"text": "a", "label": {label}}}\n' for label in ("1", digits)]
    path.write_text("".join(rows) if kind == "jsonl" else f"text,label\na,1\nb,{digits}\n")
    said = "a number has too many digits" if kind == "jsonl" else "column 'label': label '1111"
    with pytest.raises(DataError, match=rf"train\.{kind}:{2 if kind == 'jsonl' else 3}: .*{said}"):
        load_split(IMDB, path, "train")
    if kind == "csv":
        assert csv_task(path).labels == ("1", digits)


def test_a_header_of_many_columns_takes_no_quadratic_time(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    names = ",".join(f"c{number}" for number in range(200_000))
    path.write_text(f"text,label,{names}\na,1\n")
    start = time.perf_counter()
    assert len(open_table(path, Columns(text=("text",)), BadRows()).columns) == 200_002
    with pytest.raises(DataError, match=r"train\.csv:2: the row has 2 fields, expected 200002: .* and 199982 more"):
        load_split(IMDB, path, "train")
    with pytest.raises(DataError, match=r"no text column 'sentence'.*and 199982 more"):
        load_split(TASKS["sst2"], path, "train")
    assert time.perf_counter() - start < 20
    path.write_text(f"text,label,{names},c7\na,1\n")
    with pytest.raises(DataError, match=r":1: the header names column 'c7' more than once"):
        load_split(IMDB, path, "train")


def test_a_parquet_file_whose_name_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"d\xff.parquet")
    with path.open("wb") as file:
        pq.write_table(pa.table({"text": ["good", "bad"], "label": [1, 0]}), file)
    assert [example.text for example in load_split(IMDB, path, "train")] == ["good", "bad"]
    assert [row.text for row in read_texts(path, Columns(text=("text",)))[1]] == ["good", "bad"]


def test_bad_rows_are_counted_once_where_no_row_is_good(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_bytes(b"text,label\n" + b"caf\x81,good\n" * 3)
    with pytest.raises(DataError, match="no row can be used; the first of 3: "):
        csv_task(tmp_path / "train.csv")


def test_a_parquet_file_of_texts_that_are_not_utf8(tmp_path: Path) -> None:
    values = pa.array([b"good", b"caf\xe9"]).cast(pa.binary())
    damaged = pa.StringArray.from_buffers(2, *values.buffers()[1:])
    pq.write_table(pa.table({"text": damaged, "label": [1, 0]}), tmp_path / "train.parquet")
    with pytest.raises(DataError, match=r"train\.parquet: cannot read the rows after row 0: .*utf-8"):
        load_split(IMDB, tmp_path / "train.parquet", "train")


def test_a_delimiter_of_several_characters_is_for_fields_without_quotes(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("text||label\ngood||1\nbad||0\n")
    assert load_split(csv_task(path, delimiter="||", quoting="none"), path, "train")[0].text == "good"
    with pytest.raises(ConfigError, match=r"delimiter='\|\|' cannot separate fields that may be quoted"):
        csv_task(path, delimiter="||")


@pytest.mark.parametrize(
    ("above", "header"),
    [
        ("Reviews of 2024,,\n", "text,label,stars"),
        ("Reviews,,\n,,\nmade by Ann,,\n", "text,label,stars"),
        ("Reviews,2024,\n,,\n", "text,label,stars"),
        ("", "text,label,stars"),
    ],
)
def test_titles_above_the_header_of_csv(above: str, header: str, tmp_path: Path) -> None:
    """As where Excel has saved a sheet: every line has all fields."""
    path = tmp_path / "a.csv"
    path.write_text(f"{above}{header}\ngood film,yes,5\nbad film,no,1\nso so,yes,3\n", encoding="utf-8")
    task = csv_task(path)
    first = above.count("\n") + 1
    assert [(row.text, row.row) for row in load_split(task, path, "train")] == [
        ("good film", first + 1),
        ("bad film", first + 2),
        ("so so", first + 3),
    ]
    assert any(f"the header is line {first}; " in note for note in task.notes) == bool(above)


def test_an_empty_name_in_a_header_of_csv_makes_it_no_title(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",text,label\n0,good,yes\n1,bad,no\n", encoding="utf-8")
    assert open_table(path, Columns(("text",)), BadRows()).columns == ("", "text", "label")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("above", ["Reviews of 2024\n", "Reviews\n\nmade by Ann\n"])
def test_a_title_without_delimiters_is_no_header(delimiter: str, above: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [("body", "mark"), ("good film", "yes"), ("bad film", "no"), ("so so", "yes")]
    path.write_text(above + "".join(f"{delimiter.join(row)}\n" for row in rows), encoding="utf-8")
    for named in ("body", "text"):  # a name that is asked for, or that all rows have as many fields
        table = open_table(path, Columns((named,)), BadRows())
        assert isinstance(table, DelimitedTable)
        assert (table.columns, table.delimiter) == (("body", "mark"), delimiter)
        assert [values for _, values in table.rows(["body", "mark"])] == rows[1:]


@pytest.mark.parametrize(
    "texts",
    [
        ["good film", '"bad, film"'],
        ["good; film", "bad film", "worse; film; ever"],
        ["good film", "bad\tfilm"],
    ],
)
@pytest.mark.parametrize("title", ["text", "my reviews"])
def test_one_column_of_texts_is_read_as_one_column(title: str, texts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n".join([title, *texts, ""]), encoding="utf-8")
    _, found = read_texts(path, Columns(()))
    assert [row.text for row in found] == [text.strip('"') for text in texts]


def test_one_column_whose_texts_have_commas_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("review\ngood, film\nbad film\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.csv:2: the row has 2 fields, expected 1: .*name the file \.txt"):
        list(read_texts(path, Columns(()))[1])
    with pytest.raises(DataError, match=r"there is one column, 'review'\. Texts to learn from need a column of labels"):
        csv_task(path)
