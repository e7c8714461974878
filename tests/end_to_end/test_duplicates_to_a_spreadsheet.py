"""Questions of QQP in a spreadsheet with ids: their duplicates, in groups, opened again by openpyxl."""

from __future__ import annotations

import csv
import lzma
from itertools import islice
from pathlib import Path

import openpyxl
import pytest

from bertkit.cli import main


def test_duplicates_of_questions(
    shared: Path, minilm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with lzma.open(shared / "data/glue/QQP/train_slice.tsv.xz", "rt", encoding="utf-8", newline="") as lines:
        pairs = list(islice(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE), 150))
    questions = openpyxl.Workbook()
    questions.active.append(["id", "text", "asked by"])
    ids: dict[tuple[int, int], str] = {}
    for number, pair in enumerate(pairs):
        for half in (1, 2):
            ids[number, half] = f"{number:04}-{half}"
            questions.active.append([ids[number, half], pair[f"question{half}"], "@someone"])
    questions.save(tmp_path / "questions.xlsx")

    out = tmp_path / "same.xlsx"
    argv = ["duplicates", str(tmp_path / "questions.xlsx"), "--model", str(minilm), "--threshold", "auto"]
    assert main([*argv, "--out", str(out), "--device", "cpu"]) == 0
    said = capsys.readouterr().err
    assert "cosine of each different text with its nearest other" in said
    header, *rows = openpyxl.load_workbook(out).active.iter_rows(values_only=True)
    assert header == ("id", "text", "asked by", "group", "similarity", "line")
    group_of = {row[0]: row[3] for row in rows}
    assert all(row[2] == "@someone" for row in rows)
    lines_of = dict(zip(ids.values(), range(2, len(ids) + 2), strict=True))
    assert all(row[5] == lines_of[row[0]] for row in rows)
    found = [number for number in range(len(pairs)) if group_of.get(ids[number, 1], 0) == group_of.get(ids[number, 2])]
    true = [number for number, pair in enumerate(pairs) if pair["is_duplicate"] == "1"]
    right = len(set(found) & set(true))
    assert right / len(true) > 0.7
    assert right / len(found) > max(0.5, 1.2 * len(true) / len(pairs))
