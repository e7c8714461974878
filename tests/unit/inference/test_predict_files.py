"""Whole files: nothing of the input is lost, what was cut or empty is told, and one process at a time writes."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertkit import BertForSequenceClassification, BertForTokenClassification
from bertkit.bulk.cuts import Size
from bertkit.bulk.planner import How, predict_file
from bertkit.cli import main
from bertkit.engine.rows import WindowSize
from bertkit.errors import ConfigError, DataError, InputError
from bertkit.inference import runs
from bertkit.inference.row_files import write_rows
from bertkit.inference.runs import load_run, open_run, predict_run
from bertkit.system.atomic_files import held_lock
from bertkit.tasks import Columns, get_task, ner_task
from bertkit.tasks.registry import task_to_dict
from pipeline_helpers import save_tiny
from training_helpers import read_rows


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"), BertForSequenceClassification, num_labels=2)


def predicted(model: Path, source: Path, name: str = "out.jsonl", **options: Any) -> list[dict[str, Any]]:
    out = source.parent / name
    predict_file(model, source, out, **options)
    return read_rows(out)


def test_every_column_of_a_table_is_kept(model: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text('id,review,stars\n007,"good, film",5\n008,bad,1\n', encoding="utf-8")
    rows = predicted(model, source, columns=Columns(text=("review",)))
    assert [list(row) for row in rows] == [
        ["id", "review", "stars", "text", "predicted", "probabilities", "truncated"]
    ] * 2
    assert [(row["id"], row["review"], row["stars"]) for row in rows] == [
        ("007", "good, film", "5"),
        ("008", "bad", "1"),
    ]


def test_every_key_of_json_lines_is_kept_and_none_is_written_over(model: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    lines = [{"text": "good", "predicted": "by hand", "n": 3}, {"text": "bad", "predicted": None, "more": {"a": [1]}}]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    rows = predicted(model, source)
    for row, line in zip(rows, lines, strict=True):
        assert {name: row[name] for name in line} == line
        assert row["bertkit_predicted"] in ("LABEL_0", "LABEL_1")


def test_values_that_json_does_not_have(model: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.parquet"
    days = pa.array([18_000, 18_001], pa.date32())
    pq.write_table(pa.table({"text": ["good", "bad"], "x": [0.5, float("nan")], "day": days}), source)
    rows = predicted(model, source)
    assert [row["x"] for row in rows] == [0.5, None]
    assert [row["day"] for row in rows] == ["2019-04-14", "2019-04-15"]


def test_a_folder_of_brat(tmp_path: Path) -> None:
    labels = {0: "O", 1: "B-PER", 2: "I-PER"}
    run, source = save_tiny(tmp_path / "m", BertForTokenClassification, id2label=labels), tmp_path / "texts"
    source.mkdir()
    for name, text in (("one", "the good film"), ("two", "not a bad scene")):
        (source / f"{name}.txt").write_text(text)
        (source / f"{name}.ann").write_text("T1\tPER 0 3\tthe\n" if name == "one" else "")
    settings = {"task": task_to_dict(ner_task(source)), "config": {}, "data": "x"}
    (run / "finetune.json").write_text(json.dumps(settings))
    assert [(row["file"], row["text"]) for row in predicted(run, source)] == [
        ("one.txt", "the good film"),
        ("two.txt", "not a bad scene"),
    ]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.bin").write_text("text")
    with pytest.raises(DataError, match="is not a file; give one of the files in it"):
        predicted(run, tmp_path / "other", "b.jsonl")


def test_columns_of_odd_types(model: Path, tmp_path: Path) -> None:
    """Numbers beyond those of Python's neighbours, and text that is said to be bytes, as Spark writes it."""
    source = tmp_path / "in.parquet"
    count = 5000  # more than one part
    large = pa.array([*range(count - 2), 2**63 + 5, 2**64 - 1], pa.uint64())
    raw = pa.array([b"ok", b"\xff\x00"] * (count // 2))
    kinds = pa.array(["a", "b"] * (count // 2)).dictionary_encode()
    pq.write_table(pa.table({"text": pa.array([b"good"] * count), "n": large, "raw": raw, "kind": kinds}), source)
    predict_file(model, source, tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert found["n"] == large.to_pylist()
    assert found["raw"][:2] == ["ok", "ff00"]
    assert found["kind"][:2] == ["a", "b"]
    assert set(found["text"]) == {"good"}
    rows = predicted(model, source)
    assert (rows[-1]["n"], rows[-1]["raw"]) == (2**64 - 1, "ff00")
    pq.write_table(pa.table({"text": pa.array([b"good", b"\xff"])}), source)
    good, bad = predicted(model, source, "other.jsonl")
    assert "error" not in good
    assert bad["error"] == "column 'text' holds b'\\xff', expected a text"
    assert read_rows(tmp_path / "other.jsonl.errors.jsonl") == [{"place": f"{source}:2", "error": bad["error"]}]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_tables_keep_the_columns_too(model: Path, tmp_path: Path, suffix: str) -> None:
    source, out = tmp_path / "in.csv", tmp_path / f"out{suffix}"
    source.write_text("id,text\na1,good film\na2,\n", encoding="utf-8")
    assert predict_file(model, source, out) == 2
    if suffix == ".parquet":
        rows = pq.read_table(out).to_pylist()
    else:
        with out.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t" if suffix == ".tsv" else ","))
    expected = ["id", "text", "predicted", "probability", "p_LABEL_0", "p_LABEL_1", "truncated", "empty"]
    assert [list(row) for row in rows] == [expected] * 2
    assert [row["id"] for row in rows] == ["a1", "a2"]
    assert [str(row["empty"]) for row in rows] == ["False", "True"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", out.name]


def test_a_table_of_answers_of_other_kinds_and_of_several_labels(tmp_path: Path) -> None:
    several = {"text": "a", "predicted": ["x", "y"], "probabilities": {"x": 0.75, "y": 0.5}, "truncated": False}
    answer = {"id": "q1", "predicted": "Paris", "start": 3, "words": ["a", "b"], "entities": [{"type": "PER"}]}
    choice = {"choices": ["a", "b, c"], "predicted": 1, "probabilities": [0.25, 0.75], "truncated": True}
    many = {"predicted": ["x", "rare"], "probabilities": {"x": 0.75}, "truncated": False}
    for number, row in enumerate((several, answer, choice, many)):
        write_rows([row], tmp_path / f"{number}.csv")
    assert table(tmp_path / "0.csv") == [
        {
            "text": "a",
            "predicted": "x|y",
            "probability": "0.7500|0.5000",
            "p_x": "0.75",
            "p_y": "0.5",
            "truncated": "False",
            "empty": "False",
        }
    ]
    assert table(tmp_path / "3.csv")[0]["probability"] == "0.7500|"
    assert table(tmp_path / "1.csv") == [
        {
            "id": "q1",
            "predicted": "Paris",
            "start": "3",
            "words": "a|b",
            "entities": '[{"type": "PER"}]',
            "empty": "False",
        }
    ]
    assert table(tmp_path / "2.csv") == [
        {
            "choices": "a|b, c",
            "predicted": "1",
            "probabilities": "[0.25, 0.75]",
            "truncated": "True",
            "empty": "False",
        }
    ]


def test_long_and_empty_texts_are_told_and_marked(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("good\n" + "good " * 100 + "\n\n \t\n", encoding="utf-8")
    rows = predicted(model, source)
    assert [row["truncated"] for row in rows] == [False, True, False, False]
    assert [row.get("empty", False) for row in rows] == [False, False, True, True]
    assert [row["predicted"] is None for row in rows] == [False, False, True, True]
    assert rows[2]["probabilities"] == {"LABEL_0": None, "LABEL_1": None}
    told = capsys.readouterr().err
    assert "1 of 4 inputs was longer than 64 tokens and was truncated" in told
    assert "2 of 4 rows have no text and no label" in told


def test_a_row_that_lacks_its_text_gets_no_label(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "good"}\n{"text": null}\n{"other": 1}\n', encoding="utf-8")
    pq.write_table(pa.table({"text": ["good", None], "n": [1, 2]}), tmp_path / "in.parquet")
    for name in ("in.jsonl", "in.parquet"):
        rows = predicted(model, tmp_path / name, f"{name}.out.jsonl")
        assert [row["predicted"] is None for row in rows] == [False, True, True][: len(rows)]
        assert rows[1]["text"] == ""
        assert rows[1]["empty"]


def test_half_of_a_pair_gets_no_label_unless_the_task_allows_it(model: Path) -> None:
    pairs = [("good", "film"), ("good", ""), ("", "film")]
    assert [row["predicted"] is None for row in predict_run(model, pairs)] == [False, True, True]
    run = open_run(model, get_task("qqp"))
    assert [row["predicted"] is None for row in predict_run(run, pairs)] == [False, False, True]


def test_a_byte_order_mark_is_no_part_of_the_first_text(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes("\ufeffgood\nbad\n".encode())
    assert [row["text"] for row in predicted(model, tmp_path / "in.txt")] == ["good", "bad"]


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
@pytest.mark.parametrize("kind", [".txt", ".csv"])
def test_damaged_compressed_files(model: Path, tmp_path: Path, suffix: str, pack: Any, kind: str) -> None:
    whole = pack(b"text\n" + b"".join(f"good film {n} {n * 7919 % 10007}\n".encode() for n in range(5000)))
    for content in (whole[: len(whole) // 2], b"text\nnot compressed at all\n"):
        source = tmp_path / f"in{kind}{suffix}"
        source.write_bytes(content)
        with pytest.raises(DataError, match=r"in\.(txt|csv)\S*: damaged or cut short"):
            predict_file(model, source, tmp_path / "out.jsonl")
        for left in tmp_path.glob("out*"):
            left.unlink()


def test_one_process_at_a_time_writes_an_output(model: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("good\nbad\n", encoding="utf-8")
    with (
        held_lock(tmp_path / ".out.jsonl.lock", "held by this test"),
        pytest.raises(ConfigError, match=r"another process is writing .*out\.jsonl"),
    ):
        predict_file(model, source, out)
    assert predict_file(model, source, out) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.jsonl"]


@pytest.mark.slow
def test_two_commands_at_once_lose_no_row(model: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("".join(f"good film {n}\n" for n in range(3000)), encoding="utf-8")
    command = [sys.executable, "-m", "bertkit", "predict", source, "--model", model, "--out", tmp_path / "out.jsonl"]
    running = []
    for _ in range(2):
        running.append(subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE, text=True))
        time.sleep(0.2)
    told = [process.communicate()[1] for process in running]
    ends = [process.returncode for process in running]
    assert 0 in ends
    for code, err in zip(ends, told, strict=True):
        assert code == 0 or "another process is writing" in err or "exists already" in err
    assert [row["text"] for row in read_rows(tmp_path / "out.jsonl")] == [f"good film {n}" for n in range(3000)]


def test_the_folder_of_the_output_is_made(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("good\n", encoding="utf-8")
    assert predict_file(model, tmp_path / "in.txt", tmp_path / "new" / "folder" / "out.jsonl") == 1


def table(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".xlsx":
        header, *rows = openpyxl.load_workbook(path).active.iter_rows(values_only=True)
        return [dict(zip(header, row, strict=True)) for row in rows]
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".xlsx"])
def test_tables_have_the_columns_of_all_rows(
    model: Path, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertkit.inference.row_files.ROW_GROUP", 2)
    monkeypatch.setattr(runs, "TEXTS", WindowSize(items=2, first=1, characters=100))
    source, out = tmp_path / "in.jsonl", tmp_path / f"out{suffix}"
    lines: list[dict[str, Any]] = [{"text": "good", "n": None}, {"text": "bad", "n": 1}, {"text": "end", "late": "x"}]
    source.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"text": "a", "n": 0.5}]), encoding="utf-8")
    assert predict_file(model, source, out) == 4
    rows = table(out)
    assert [row["late"] for row in rows] == (["", "", "x", ""] if suffix == ".csv" else [None, None, "x", None])
    assert [str(row["n"] or "") for row in rows] == ["", "1.0" if suffix == ".parquet" else "1", "", "0.5"]


def test_what_parquet_cannot_hold_is_named_before_anything_is_predicted(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.parquet"
    source.write_text('{"text": "good", "n": 1}\n{"text": "bad", "n": "one"}\n', encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(runs.Run, "answers", None)
        with pytest.raises(DataError, match=r"column 'n': .* a \.parquet file cannot hold this.*\.jsonl"):
            predict_file(model, source, out)
    assert not out.exists()
    source.write_text('{"text": "good", "n": 1}\n{"text": "bad", "n": 2}\n', encoding="utf-8")
    assert predict_file(model, source, out) == 2, "an unfinished file without rows is no obstacle"


def test_no_column_is_written_over_nor_read_as_ours(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    theirs = {
        "text": "1",
        "review": "good",
        "predicted": "by hand",
        "bertkit_predicted": "earlier",
        "probability": "high",
        "p_LABEL_0": "low",
        "truncated": "never",
        "empty": "no",
    }
    source.write_text(",".join(theirs) + "\n" + ",".join(theirs.values()) + "\n", encoding="utf-8")
    predict_file(model, source, out, Columns(text=("review",)))
    (row,) = table(out)
    assert {name: row[name] for name in theirs} == theirs
    assert row["bertkit_bertkit_predicted"] in ("LABEL_0", "LABEL_1")
    assert float(row["bertkit_probability"]) == max(float(row["bertkit_p_LABEL_0"]), float(row["p_LABEL_1"]))
    assert (row["bertkit_text"], row["bertkit_truncated"], row["bertkit_empty"]) == ("good", "False", "False")
    capsys.readouterr()
    assert main(["predict", str(source), "--model", str(model), "--text", "review", "--device", "cpu"]) == 0
    label, share, text = capsys.readouterr().out.rstrip("\n").split("\t")
    assert (label, share, text) == (
        row["bertkit_bertkit_predicted"],
        f"{float(row['bertkit_probability']):.4f}",
        "good",
    )


def test_names_are_those_of_the_whole_file(model: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"text": "good"}\n{"text": "bad", "predicted": "by hand"}\n', encoding="utf-8")
    assert all("bertkit_predicted" in row for row in predicted(model, source))


def test_a_folder_is_no_input(model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a file; give one of the files in it"):
        predict_file(model, tmp_path, tmp_path / "out.jsonl")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([None, "a"], "text 0 .*expected a text or a pair of texts, got None"),
        (["a", None], "text 1 .*expected a text, as the first was, got None"),
        ([("a", "b"), "a"], "text 1 .*expected a pair of texts, as the first was, got 'a'"),
        ([("a", 1)], "text 0 .*expected a text or a pair"),
    ],
)
def test_predict_run_says_what_is_no_text(model: Path, rows: list[Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        list(predict_run(model, rows))


def test_predict_run_draws_no_more_characters_than_a_window_has(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "TEXTS", WindowSize(items=100, first=1, characters=8))
    sizes: list[int] = []

    class Watched(runs.Run):
        def answers(self, examples: Any, **others: Any) -> Any:
            sizes.append(len(examples))
            return super().answers(examples, **others)

    loaded = load_run(model)
    names = ("path", "workflow", "engine", "tokenizer", "config", "shape")
    watched = Watched(**{name: getattr(loaded, name) for name in names})
    assert len(list(predict_run(watched, ["good", "film"] * 3))) == 6
    assert sizes == [2, 2, 2]


def test_metrics_of_another_trainer_are_not_read(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path, BertForSequenceClassification)
    (folder / "metrics.json").write_text('{"eval_accuracy": 0.9}', encoding="utf-8")
    assert open_run(folder).max_length == 64


def test_a_file_without_a_single_result_is_an_error_that_leaves_nothing(model: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"text": 5}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"no row has a result; the first is .*in\.jsonl:1: column 'text' holds 5"):
        predict_file(model, source, out)
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    source.write_text('{"text": "good"}\n', encoding="utf-8")
    assert predict_file(model, source, out) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".parquet", ".xlsx"])
@pytest.mark.parametrize("torn", [False, True])
def test_a_stopped_file_is_resumed_to_the_same_content(
    model: Path, tmp_path: Path, suffix: str, torn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, whole, out = tmp_path / "in.jsonl", tmp_path / f"whole{suffix}", tmp_path / f"out{suffix}"
    how = How(size=Size(rows=2))
    lines: list[dict[str, Any]] = [
        {"text": 'a "film",\nof two lines', "n": None},
        {"text": "", "n": 1},
        {"text": "good", "n": 2},
        {"text": "good " * 100, "n": 0.5, "late": "x"},
        {"text": "the end", "n": 3},
    ]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert predict_file(model, source, whole, how=how) == 5
    answers, seen = runs.Run.answers, []

    def stops(self: Any, examples: Any, **others: Any) -> Any:
        seen.append(len(examples))
        if len(seen) == 3:
            raise KeyboardInterrupt
        return answers(self, examples, **others)

    monkeypatch.setattr(runs.Run, "answers", stops)
    with pytest.raises(KeyboardInterrupt):
        predict_file(model, source, out, how=how)
    assert not out.exists()
    if torn:
        part = tmp_path / f"out{suffix}.parts" / "part-00001.jsonl"
        part.write_bytes(part.read_bytes()[:-5])
    assert predict_file(model, source, out, how=how) == 5
    assert seen == ([2, 2, 1, 2, 1] if torn else [2, 2, 1, 1]), "the control: what is finished is not predicted again"
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", out.name, whole.name]
    with pytest.raises(ConfigError, match="exists already"):
        predict_file(model, source, out)


def test_rows_that_lack_what_later_ones_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.inference.row_files.ROW_GROUP", 1)
    rows: list[dict[str, Any]] = [{"a": "x\r\n,"}, {"a": "y", "b": 1}, {"c": 0.5, "b": None}]
    for suffix in (".csv", ".parquet"):
        assert write_rows(rows, tmp_path / f"out{suffix}") == 3
        assert write_rows([{"a": "long " * 60_000}, {"b": 1}], tmp_path / f"long{suffix}") == 2
    with pytest.raises(DataError, match=r"a \.parquet file cannot hold this"):
        write_rows([{"a": 2**60 + 1}, {"a": 0.5}], tmp_path / "wide.parquet")
    assert not (tmp_path / "wide.parquet").exists()
    assert table(tmp_path / "out.csv") == [
        {"a": "x\r\n,", "b": "", "c": ""},
        {"a": "y", "b": "1", "c": ""},
        {"a": "", "b": "", "c": "0.5"},
    ]
    expected = [{"a": "x\r\n,", "b": None, "c": None}, {"a": "y", "b": 1, "c": None}, {"a": None, "b": None, "c": 0.5}]
    assert table(tmp_path / "out.parquet") == expected


def test_tables_are_written_without_parsing_what_was_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.txt").write_text("good\nbad\n", encoding="utf-8")
    monkeypatch.setattr("bertkit.inference.row_files.csv", SimpleNamespace(writer=csv.writer))
    monkeypatch.setattr("bertkit.inference.row_files.json", SimpleNamespace(dumps=json.dumps))
    for suffix in (".csv", ".tsv", ".parquet", ".jsonl"):
        assert predict_file(model, tmp_path / "in.txt", tmp_path / f"out{suffix}") == 2
