"""The texts of a file, as all commands read them: the column of a table, and the line of each row."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bertkit import (
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from bertkit.cli import STANDARD_STREAM, main
from bertkit.cli.cluster import text_rows
from bertkit.cli.common_options import Computing, PairReading, Source, read_pairs, read_texts
from bertkit.cli.predict import _show
from bertkit.cli.task_options import TextColumns
from bertkit.errors import ConfigError, DataError
from bertkit.tasks import csv_task
from bertkit.tasks.registry import task_to_dict
from pipeline_helpers import save_tiny

#: The first text begins at line 3 and ends at line 4; an empty line follows; the last one is at line 7.
TABLE = '\nid,text,label\na,"good\nfilm",x\n\nb," ",y\nc,good  FILM,x\n'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("model") / "m"))


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("tickets.csv").write_text(TABLE, encoding="utf-8")
    return Path("tickets.csv")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.txt", "\n\nhello\n \nbye\n\n\n"), ("a.csv", 'text,n\n" ",1\n"",2\nhello,3\n" ",4\nbye,5\n"",6\n" ",7\n')],
)
def test_every_empty_text_is_counted(
    name: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(content)
    rows = text_rows(tmp_path / name, TextColumns())
    assert rows.texts == ["hello", "bye"]
    assert "left out 5 empty texts" in capsys.readouterr().err


def objects(capsys: pytest.CaptureFixture[str], *argv: str) -> list[Any]:
    assert main([*argv, "--json", "--device", "cpu"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_places_are_lines_of_the_file(table: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert [*table.read_text().split("\n")][6] == "c,good  FILM,x"
    (same,) = objects(capsys, "duplicates", str(table), "--model", model)
    assert same["places"] == ["tickets.csv:3", "tickets.csv:7"]
    Path("without-ids.csv").write_text(TABLE.replace("id,", "number,"), encoding="utf-8")
    objects(capsys, "search", "build", "index", "without-ids.csv", "--model", model)
    (found,) = objects(capsys, "search", "query", "index", "film")
    assert {hit["id"] for hit in found["hits"]} == {"without-ids.csv:3", "without-ids.csv:7"}
    Path("no-id.csv").write_text("text,id\nfilm,1\n\nend,\n", encoding="utf-8")
    assert main(["search", "build", "other", "no-id.csv", "--model", model]) == 3
    assert "no-id.csv:4: column 'id' holds ''" in capsys.readouterr().err
    Path("long.csv").write_text(f"text\nfilm\n\n{'good ' * 40}\n", encoding="utf-8")
    assert main(["cluster", "long.csv", "--model", model, "--max-length", "8"]) != 0
    assert "long.csv:4: a text of more than" in capsys.readouterr().err


def test_empty_texts_of_many_files_are_counted_once(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "abc":
        Path(f"{name}.txt").write_text("film\n\nend\n", encoding="utf-8")
    assert main(["search", "build", "index", "a.txt", "b.txt", "c.txt", "--model", model]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert told == ["left out 3 empty texts of 3 files"]


def test_a_table_gives_its_column_to_every_command(
    table: Path, model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["good\nfilm", " ", "good  FILM"]
    assert list(read_texts((), Source(table))) == texts
    assert list(read_texts((), Source(table, TextColumns(text="id")))) == ["a", "b", "c"]
    assert [row["text"] for row in objects(capsys, "embed", "--model", model, "--file", str(table))] == texts
    rows = objects(capsys, "similarity", "--model", model, "film", "--file", str(table), "--text", "label")
    assert [row["text_pair"] for row in rows] == ["x", "y", "x"]
    Path("long.csv").write_text("text\nfilm\n\ngood good good good\n", encoding="utf-8")
    assert main(["embed", "--model", model, "--file", "long.csv", "--max-length", "5"]) != 0
    assert "long.csv:4: the text has 6 tokens" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"film\ngood good good good\n")))
    assert main(["embed", "--model", model, "--max-length", "5", "-"]) != 0
    assert "standard input, line 2: the text has 6 tokens" in capsys.readouterr().err
    Path("other.csv").write_text("remark,label\na,b\n", encoding="utf-8")
    assert main(["embed", "--model", model, "--file", "other.csv"]) == 3
    assert "The columns are ['remark', 'label']; choose one with --text" in capsys.readouterr().err
    lines = Path("lines.txt")
    lines.write_text(TABLE, encoding="utf-8")
    assert list(read_texts((), Source(lines))) == TABLE.split("\n")[:-1]  # the control: a file without columns
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TABLE.encode())))
    assert list(read_texts((STANDARD_STREAM,), Source())) == TABLE.split("\n")[:-1]


BROKEN = ["good\nfilm", "\tgood\r\n\r\n  film [MASK]\u2028", "good\x85film"]


@pytest.mark.parametrize(
    ("command", "model_class", "arguments"),
    [
        ("classify", BertForSequenceClassification, ()),
        ("tag", BertForTokenClassification, ()),
        ("similarity", BertModel, ("good",)),
        ("rerank", BertForSequenceClassification, ("good",)),
        ("next-sentence", BertForNextSentencePrediction, ("--text-pair", "other")),
        ("fill-mask", BertForMaskedLM, ("--top-k", "1")),
    ],
)
def test_a_text_is_shown_on_one_line(
    command: str,
    model_class: Any,
    arguments: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    labels = {"num_labels": 1} if command == "rerank" else {}
    folder = str(save_tiny(tmp_path / "m", model_class, **labels))
    texts = [f"{text} [MASK]" for text in BROKEN] if command == "fill-mask" else BROKEN
    rows = [{"text": text, "other": text} for text in texts]
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    given = [command, *arguments, "--file", str(tmp_path / "a.json"), "--text", "text", "--model", folder]
    assert main([*given, "--device", "cpu"]) == 0
    printed = capsys.readouterr().out.split("\n")
    shown = [line for line in printed if "good film" in line and not line.startswith("  ")]  # those of tag are entities
    assert len(shown) == 3
    assert not any(mark in line for line in shown for mark in "\r\u2028\x85")


def test_a_prediction_and_a_hit_are_lines(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"text": "a\n b", "text_pair": "c\td", "predicted": "x", "probabilities": {"x": 1.0}, "truncated": False}
    _show(row, (), Computing())
    assert capsys.readouterr().out == "x\t1.0000\ta b\tc d\n"
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "good\r\n\tfilm", "id": "7"}) + "\n", encoding="utf-8")
    index = str(tmp_path / "index")
    assert main(["search", "build", index, str(tmp_path / "a.jsonl"), "--model", model]) == 0
    capsys.readouterr()
    assert main(["search", "query", index, "film\nfilm", "good"]) == 0
    query, hit, other, again = capsys.readouterr().out.splitlines()
    assert (query, other, hit[6:], again[6:]) == ("film film", "good", "\t7\tgood film", "\t7\tgood film")


@pytest.mark.parametrize("option", [{"text": "a"}, {"delimiter": ";"}, {"quoting": "none"}])
def test_columns_are_for_tables(option: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    for texts, file in ((("a",), None), ((STANDARD_STREAM,), None), ((), tmp_path / "a.txt")):
        with pytest.raises(ConfigError, match=f"leave --{next(iter(option))} out"):
            list(read_texts(texts, Source(file, TextColumns(**option))))  # type: ignore[arg-type]


def test_pairs_are_two_columns_or_lines_with_a_tab(tmp_path: Path) -> None:
    table, lines = tmp_path / "pairs.csv", tmp_path / "pairs.txt"
    table.write_text("id,premise,hypothesis\n1,a,b\n2,c,d\n")
    lines.write_text("a\tb\nc\td\n")
    assert (
        list(read_pairs((), PairReading(table))) == list(read_pairs((), PairReading(lines))) == [("a", "b"), ("c", "d")]
    )
    given = TextColumns(text="hypothesis", text_pair="id")
    assert list(read_pairs((), PairReading(table, given))) == [("b", "1"), ("d", "2")]
    lines.write_text("a\tb\nc\n")
    with pytest.raises(DataError, match=r"pairs\.txt:2: 0 tabs found"):
        list(read_pairs((), PairReading(lines)))


def test_a_text_that_names_a_file_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.txt").write_text("a text\n")
    name = str(tmp_path / "new.txt")
    assert read_texts((name, "another"), Source()) == [name, "another"]
    assert f"--file {name} reads its texts" in capfd.readouterr().err


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run that was trained on the column ``body`` of a table."""
    folder = tmp_path_factory.mktemp("run")
    save_tiny(folder, BertForSequenceClassification, num_labels=2)
    table = folder / "train.csv"
    table.write_text("title,body,label\na,good,x\nb,bad,y\n", encoding="utf-8")
    settings = {"task": task_to_dict(csv_task(table, "body")), "config": {}, "data": str(table)}
    (folder / "finetune.json").write_text(json.dumps(settings), encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize("command", [["classify", "--file"], ["embed", "--file"], ["predict"]])
def test_a_run_knows_its_column(
    command: list[str], run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(header: str, *more: str) -> tuple[list[str], str]:
        table = tmp_path / f"{'-'.join(header.split(','))}.csv"
        table.write_text(f"{header}\nfilm,good,the\nend,bad,a\n", encoding="utf-8")
        assert main([*command, str(table), "--model", run, "--device", "cpu", "--json", *more]) == 0
        told = capsys.readouterr()
        return [json.loads(line)["text"] for line in told.out.splitlines()], told.err

    texts, told = read("title,body,other")
    assert texts == ["good", "bad"]
    assert "column 'body' is read, as in training; choose another with --text" in told
    texts, told = read("title,text,other")
    assert texts == ["good", "bad"]
    assert "column 'text' is read; there is no column 'body', which was read in training" in told
    texts, told = read("text,body,other", "--text", "text")
    assert texts == ["film", "end"]
    assert "column" not in told


def test_a_table_that_is_named_txt_is_told(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Excel names what it saves as Unicode text."""
    monkeypatch.chdir(tmp_path)
    Path("u.txt").write_text("id\ttext\tlabel\n007\tfilm\tgood\n", encoding="utf-16")
    Path("pairs.txt").write_text("film\tgood\n")
    for name, told in (("u.txt", True), ("pairs.txt", False)):
        assert main(["embed", "--file", name, "--model", model, "--json"]) == 0
        assert (f"{name}: each line is read as one text, but the first has 2 tabs" in capsys.readouterr().err) == told
