"""``--out`` of commands that use a model: rows with all columns of the input, whatever the ending; printed ids."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow.parquet as pq
import pytest

from bertkit import (
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from bertkit.cli import main
from bertkit.cli.duplicates import histogram
from bertkit.tasks.registry import task_to_dict
from bertkit.tasks.rerank.columns import RerankFiles
from pipeline_helpers import Command, save_tiny

pytestmark = pytest.mark.slow

#: Ids with zeros in front, text that looks like a formula, and a column with the name of one of ours.
TABLE = 'id,text,note,score\n007,the good film,=1+1,high\n008,the bad film,+49,low\n009,not a good scene,"a;b",low\n'
ENDINGS = (".csv", ".tsv", ".xlsx", ".parquet", ".jsonl")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[type[Any]], str]:
    folder, made = tmp_path_factory.mktemp("models"), dict[str, str]()

    def model(kind: type[Any], **settings: Any) -> str:
        if kind.__name__ not in made:
            made[kind.__name__] = str(save_tiny(folder / kind.__name__, kind, **settings))
        return made[kind.__name__]

    return model


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text(TABLE, encoding="utf-8")

    def run(*argv: str) -> tuple[int, str, str]:
        code = main([*argv, "--device", "cpu"])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, by a reader that is not ours; empty cells are None."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if path.suffix == ".parquet":
        return list(pq.read_table(path).to_pylist())
    if path.suffix == ".xlsx":
        header, *cells = openpyxl.load_workbook(path).active.iter_rows(values_only=True)
        return [dict(zip(header, row, strict=True)) for row in cells]
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        return [{name: value or None for name, value in row.items()} for row in reader]


def as_text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


#: Command, class of its model, what it is called with, and the columns that it adds to those of the file.
COMMANDS = [
    ("classify", BertForSequenceClassification, ["--all"], "predicted probability p_LABEL_0 p_LABEL_1"),
    ("tag", BertForTokenClassification, [], "entity bertkit_score start end word"),
    ("fill-mask", BertForMaskedLM, ["--text", "masked"], "mask bertkit_score token_str sequence"),
    ("similarity", BertModel, ["a good film"], "compared_with bertkit_score"),
    ("rerank", BertForSequenceClassification, ["a good film"], "query bertkit_score index"),
    ("cluster", BertModel, ["--k", "2"], "cluster nearness"),
    ("topics", BertModel, ["--k", "2"], "cluster nearness words"),
    ("predict", BertForSequenceClassification, [], "predicted probability p_LABEL_0 truncated empty"),
]


@pytest.mark.parametrize(
    ("name", "kind", "options", "added"),
    [
        pytest.param(*each, id=each[0], marks=[] if each[0] in ("classify", "tag", "cluster") else pytest.mark.campaign)
        for each in COMMANDS
    ],
)
def test_every_ending_has_the_same_rows_with_all_columns(
    name: str, kind: type[Any], options: list[str], added: str, models: Any, command: Command
) -> None:
    settings = {"num_labels": 3} if name == "tag" else {"num_labels": 1} if name == "rerank" else {"num_labels": 2}
    if kind is BertForSequenceClassification and name == "rerank":
        model = str(save_tiny(Path("one"), kind, **settings))
    else:
        model = models(kind, **(settings if "Classification" in kind.__name__ else {}))
    if name == "fill-mask":
        lines = TABLE.splitlines()
        Path("in.csv").write_text(
            "\n".join([f"{lines[0]},masked", *(f"{line},the [MASK] film" for line in lines[1:])]) + "\n"
        )
    file = ["in.csv"] if name in ("cluster", "topics", "predict") else ["--file", "in.csv"]
    texts = [word for word in options if " " in word]
    others = [word for word in options if " " not in word]
    found = {}
    for ending in ENDINGS:
        out = Path(f"out{ending}")
        code, shown, said = command(name, *texts, *file, "--model", model, *others, "--out", str(out))
        assert code == 0, said
        assert f"to {out}" in said
        if name not in ("cluster", "topics"):
            assert shown == ""
        found[ending] = rows_of(out)
    with Path("in.csv").open(encoding="utf-8", newline="") as file_in:
        given = {row["id"]: row for row in csv.DictReader(file_in)}
    for ending, rows in found.items():
        assert {row["id"] for row in rows} == set(given), ending
        for row in rows:
            kept = {column: row[column] for column in given[row["id"]]}
            assert kept == given[row["id"]], ending
        if ending != ".jsonl":
            assert set(added.split()) <= set(rows[0]), ending
    as_csv = [{column: as_text(value) for column, value in row.items()} for row in found[".xlsx"]]
    assert [list(row) for row in as_csv] == [list(row) for row in found[".csv"]]
    assert as_csv == found[".csv"] == found[".tsv"]
    assert as_csv == [{column: as_text(value) for column, value in row.items()} for row in found[".parquet"]]


def test_nested_results_are_rows_in_tables_and_lists_in_json_lines(models: Any, command: Command) -> None:
    model = models(BertForTokenClassification, num_labels=3)
    argv = ["tag", "--file", "in.csv", "--model", model, "--strategy", "none"]
    assert command(*argv, "--out", "a.jsonl")[0] == command(*argv, "--out", "a.xlsx")[0] == 0
    nested = rows_of(Path("a.jsonl"))
    assert len(nested) == 3
    assert max(len(row["entities"]) for row in nested) > 1
    flat = [(row["id"], row["entity"], row["bertkit_score"], row["start"]) for row in rows_of(Path("a.xlsx"))]
    assert flat == [
        (row["id"], each["entity"], each["score"], each["start"]) for row in nested for each in row["entities"]
    ]


def test_a_text_without_results_keeps_its_row(models: Any, command: Command) -> None:
    model = models(BertForTokenClassification, num_labels=3)
    Path("in.csv").write_text('id,text\n1,""\n2,the good film\n', encoding="utf-8")
    assert command("tag", "--file", "in.csv", "--model", model, "--strategy", "none", "--out", "a.csv")[0] == 0
    rows = rows_of(Path("a.csv"))
    assert (rows[0]["id"], rows[0]["entity"]) == ("1", None)
    assert len(rows) > 2


def test_pairs_of_arguments_have_their_texts_as_columns(models: Any, command: Command) -> None:
    model = models(BertForSequenceClassification, num_labels=2)
    assert command("classify", "--pairs", "good", "bad", "--model", model, "--out", "a.csv")[0] == 0
    assert list(rows_of(Path("a.csv"))[0])[:3] == ["text", "text_pair", "predicted"]


def test_answers_are_rows_with_their_questions(models: Any, command: Command) -> None:
    model = models(BertForQuestionAnswering)
    argv = ["answer", "Who?", "Where?", "--context", "the good film is not bad", "--model", model, "--top-k", "2"]
    assert command(*argv, "--out", "a.xlsx")[0] == 0
    rows = rows_of(Path("a.xlsx"))
    assert [row["question"] for row in rows] == ["Who?", "Who?", "Where?", "Where?"]
    printed = [json.loads(line) for line in command(*argv, "--json")[1].splitlines()]
    expected = [(one["answer"] or None, one["score"], one["start"]) for each in printed for one in each["answers"]]
    assert [(row["answer"], row["score"], row["start"]) for row in rows] == expected


def test_hits_are_rows_with_their_query_and_id(models: Any, command: Command) -> None:
    model = models(BertModel)
    assert command("search", "build", "index", "in.csv", "--model", model)[0] == 0
    argv = ["search", "query", "index", "a good film", "bad", "--top-k", "2"]
    assert command(*argv, "--out", "hits.xlsx")[0] == 0
    rows = rows_of(Path("hits.xlsx"))
    printed = [json.loads(line) for line in command(*argv, "--json")[1].splitlines()]
    expected = [
        (each["query"], rank, hit["id"], hit["text"], hit["score"])
        for each in printed
        for rank, hit in enumerate(each["hits"], start=1)
    ]
    assert [tuple(row[name] for name in ("query", "rank", "id", "text", "score")) for row in rows] == expected
    assert {row["id"] for row in rows} <= {"007", "008", "009"}
    code, _, said = command("search", "info", "index", "--out", "info.csv")
    assert (code, "--out is for 'search query'" in said) == (2, True)


def test_a_query_and_its_documents_are_rows(models: Any, command: Command, tmp_path: Path) -> None:
    model = str(save_tiny(tmp_path / "one", BertForSequenceClassification, num_labels=1))
    lines = [{"query": "good", "documents": ["film", "scene"]}, {"query": "bad", "documents": ["a", "the"]}]
    Path("in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert command("rerank", "--data", "in.jsonl", "--model", model, "--out", "a.csv")[0] == 0
    rows = rows_of(Path("a.csv"))
    assert [row["query"] for row in rows] == ["good", "good", "bad", "bad"]
    assert {row["document"] for row in rows} == {"film", "scene", "a", "the"}


@pytest.mark.parametrize("ending", ENDINGS)
def test_all_columns_of_documents_and_of_questions_are_kept(
    ending: str, models: Any, command: Command, tmp_path: Path
) -> None:
    Path("pairs.csv").write_text("nr,query,document,score\n007,good,film,=1+1\n008,good,scene,3\n009,bad,the,x\n")
    model = str(save_tiny(tmp_path / "one", BertForSequenceClassification, num_labels=1))
    assert command("rerank", "--data", "pairs.csv", "--model", model, "--out", f"a{ending}")[0] == 0
    rows = rows_of(Path(f"a{ending}"))
    if ending == ".jsonl":
        assert [row["query"] for row in rows] == ["good", "bad"]
        rows = [each for row in rows for each in row["ranking"]]
    assert {(row["nr"], row["document"], row["score"]) for row in rows} == {
        ("007", "film", "=1+1"),
        ("008", "scene", "3"),
        ("009", "the", "x"),
    }
    assert all(isinstance(float(row["bertkit_score"]), float) for row in rows)
    Path("asked.csv").write_text("nr,question,context\n007,Who?,the good film\n008,Where?,the bad film\n")
    argv = ("answer", "--file", "asked.csv", "--model", models(BertForQuestionAnswering), "--out", f"b{ending}")
    assert command(*argv)[0] == 0
    assert [(row["nr"], row["question"]) for row in rows_of(Path(f"b{ending}"))] == [("007", "Who?"), ("008", "Where?")]


def test_documents_are_in_the_columns_of_the_run_and_all_columns_are_kept(command: Command, tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "one", BertForSequenceClassification, num_labels=1)
    task = RerankFiles(text="ask", text_pair="para").task("rerank", tmp_path)
    (model / "finetune.json").write_text(json.dumps({"task": task_to_dict(task), "config": {}}))
    Path("docs.csv").write_text("id,ask,para,text\n07,good,film,no\n08,good,scene,no\n")
    argv = ("rerank", "good", "--file", "docs.csv", "--model", str(model))
    code, _, said = command(*argv, "--out", "a.csv")
    assert (code, "column 'para' is read, as in training" in said) == (0, True)
    rows = rows_of(Path("a.csv"))
    assert sorted((row["id"], row["ask"], row["para"], row["text"]) for row in rows) == [
        ("07", "good", "film", "no"),
        ("08", "good", "scene", "no"),
    ]
    assert command(*argv, "--text", "text", "--out", "b.csv")[0] == 0
    assert command("rerank", "--data", "docs.csv", "--model", str(model), "--out", "c.csv")[0] == 0
    assert {row["document"] for row in rows_of(Path("c.csv"))} == {"film", "scene"}
    (model / "finetune.json").unlink()
    Path("other.csv").write_text("passage\na film\n")
    assert command("rerank", "good", "--file", "other.csv", "--model", str(model))[0] == 0
    code, _, said = command(*argv, "--text-pair", "para")
    assert (code, "leave --text-pair out" in said) == (2, True)


@pytest.mark.parametrize(
    ("name", "kind", "texts"),
    [
        ("classify", BertForSequenceClassification, []),
        ("tag", BertForTokenClassification, []),
        ("similarity", BertModel, ["a good film"]),
        ("next-sentence", BertForNextSentencePrediction, ["--text-pair", "note"]),
    ],
)
def test_ids_of_a_table_are_printed(
    name: str, kind: type[Any], texts: list[str], models: Any, command: Command
) -> None:
    labels = {BertForSequenceClassification: 2, BertForTokenClassification: 3}
    model = models(kind, **({"num_labels": labels[kind]} if kind in labels else {}))
    argv = [name, *texts, "--file", "in.csv", "--model", model]
    _, shown, _ = command(*argv)
    assert re.findall(r"(?:^|\t| )(00[789])\t", shown, re.MULTILINE) == ["007", "008", "009"]
    objects = [json.loads(line) for line in command(*argv, "--json")[1].splitlines()]
    assert [each["id"] for each in objects] == ["007", "008", "009"]
    Path("in.csv").write_text(TABLE.replace("id,", "number,", 1))  # the control: no ids where there are none
    assert not any("id" in json.loads(line) for line in command(*argv, "--json")[1].splitlines())


def test_a_csv_for_a_german_excel(models: Any, command: Command) -> None:
    model = models(BertForSequenceClassification, num_labels=2)
    for name, file in (("classify", ["--file", "in.csv"]), ("predict", ["in.csv"])):
        out = f"{name}.csv"
        code, _, said = command(name, *file, "--model", model, "--out", out, "--excel")
        assert code == 0
        assert "1 cell of" in said
        content = Path(out).read_bytes()
        assert content.startswith(b"\xef\xbb\xbfid;text;note;score;")
        rows = list(csv.DictReader(content.decode("utf-8-sig").splitlines(), delimiter=";"))
        assert [row["id"] for row in rows] == ["007", "008", "009"]
        assert [row["note"] for row in rows] == ["'=1+1", "+49", "a;b"]
        assert all(re.fullmatch(r"[01],\d+(e-\d+)?", row["probability"]) for row in rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--out", "a.xls"], "the name must end in"),
        (["--out", "in.csv"], "exists already"),
        (["--out", "nowhere/a.csv"], "the folder nowhere does not exist"),
        (["--excel"], "--excel goes with --out X.csv"),
        (["--excel", "--out", "a.xlsx"], "opens in any Excel without it"),
    ],
)
def test_what_cannot_be_written_is_refused_before_a_model_is_opened(
    options: list[str], said: str, command: Command
) -> None:
    for argv in (["classify", "--file", "in.csv"], ["tag", "--file", "in.csv"], ["cluster", "in.csv"]):
        code, _, error = command(*argv, "--model", "no-such-model", *options)
        assert (code, said in error) == (2, True), error


def test_nothing_is_left_of_a_file_that_could_not_be_finished(models: Any, command: Command) -> None:
    model = models(BertForSequenceClassification, num_labels=2)
    Path("in.csv").write_text(f"text\ngood\n{'good ' * 100}\n", encoding="utf-8")
    code, _, error = command("classify", "--file", "in.csv", "--model", model, "--out", "a.xlsx")
    assert (code, "in.csv:3" in error) == (3, True)
    assert sorted(path.name for path in Path().iterdir()) == ["in.csv"]


def test_groups_of_duplicates_have_their_lines_ids_and_columns(models: Any, command: Command) -> None:
    model = models(BertModel)
    lines = ["id,text,note", '01,"the good', 'film",x', "02,not bad,", "03,The  good film,=2", "04,a dull scene,z"]
    Path("in.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    argv = ["duplicates", "in.csv", "--model", model, "--threshold", "0.9999"]
    code, shown, said = command(*argv, "--out", "same.xlsx")
    assert (code, shown) == (0, "")
    rows = rows_of(Path("same.xlsx"))
    assert [[row[name] for name in ("group", "similarity", "line", "id", "note")] for row in rows] == [
        [1, 1, 2, "01", "x"],
        [1, 1, 5, "03", "=2"],
    ]
    assert rows[0]["text"] == "the good\nfilm"
    _, shown, said = command(*argv)
    assert shown.splitlines() == [
        "group 1: 2 texts",
        "  1.0000\tin.csv:2\t01\tthe good film",
        "  1.0000\tin.csv:5\t03\tThe  good film",
    ]
    assert sum(int(count) for count in re.findall(r"\d\.\d\d to \d\.\d\d +(\d+)", said)) == 3  # different texts
    (group,) = [json.loads(line) for line in command(*argv, "--json")[1].splitlines()]
    assert (group["lines"], group["ids"], group["threshold"]) == ([2, 5], ["01", "03"], 0.9999)
    Path("in.csv").write_text("text\ngood\nbad\n", encoding="utf-8")  # the control
    code, shown, said = command(*argv, "--json", "--out", "none.xlsx")
    assert (code, json.loads(shown)["rows"], "there are no duplicates" in said) == (0, 0, True)
    code, _, said = command("duplicates", "in.csv", "--model", model, "--threshold", "auto")
    assert (code, "an automatic threshold needs 20 different texts, and there are 2" in said) == (2, True)


def test_predict_prints_ids_without_a_file(models: Any, command: Command) -> None:
    _, shown, _ = command("predict", "in.csv", "--model", models(BertForSequenceClassification, num_labels=2))
    assert [line.split("\t")[2] for line in shown.splitlines()] == ["007", "008", "009"]


def test_a_histogram_counts_every_value_and_marks_the_bin_of_the_threshold() -> None:
    lines = histogram(np.array([0.6, 0.61, 0.72, 1.0, 1.0], np.float32), 0.7)
    bins = [re.match(r"(\d\.\d\d) to (\d\.\d\d) +(\d+)", line) for line in lines]
    found = {match[1]: int(match[3]) for match in bins if match is not None}
    assert found == {"0.60": 2, "0.65": 0, "0.70": 1, "0.75": 0, "0.80": 0, "0.85": 0, "0.90": 0, "0.95": 2}
    assert [line[:4] for line in lines if line.endswith("< threshold")] == ["0.70"]
    for lowest in range(1, 20):  # also where products of 0.05 are not exact
        (marked,) = [line for line in histogram(np.linspace(0, 1, 50), lowest / 20) if "<" in line]
        assert marked.startswith(f"{lowest / 20:.2f} to")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM")
def test_nothing_is_left_after_sigterm(models: Any, command: Command) -> None:
    model = models(BertForSequenceClassification, num_labels=2)
    before = {path.name for path in Path().iterdir()}
    line = [
        sys.executable,
        "-m",
        "bertkit",
        "classify",
        "-",
        "--model",
        str(model),
        "--out",
        "out.csv",
        "--device",
        "cpu",
    ]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        for _ in range(1200):
            if Path(".out.csv.rows").exists():
                break
            time.sleep(0.05)
        assert {path.name for path in Path().iterdir()} - before == {".out.csv.rows", ".out.csv.lock"}
        process.terminate()
        assert process.wait(60) == 143
        assert b"stopped by SIGTERM" in process.stderr.read()
    assert {path.name for path in Path().iterdir()} == before
