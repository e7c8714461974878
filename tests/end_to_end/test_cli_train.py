"""finetune, evaluate and predict from the command line, on a task a tiny model can learn."""

from __future__ import annotations

import csv
import io
import json
import random
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from openpyxl import Workbook

from bertkit import pipeline
from bertkit.cli import main
from pipeline_helpers import Command, save_tiny


def write_reviews(path: Path, rows: int, seed: int) -> Path:
    """The word "good" or "bad" decides, whatever stands around it."""
    chance = random.Random(seed)
    filler = ["the", "film", "is", "scene", "end", "of", "it", "was"]
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["body", "stars"])
        for number in range(rows):
            words = [chance.choice(filler) for _ in range(chance.randint(3, 12))]
            words.insert(chance.randrange(len(words)), ("bad", "good")[number % 2])
            table.writerow([" ".join(words), ("poor", "fine")[number % 2]])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data file, and a finished run on it."""
    folder = tmp_path_factory.mktemp("train")
    write_reviews(folder / "reviews.csv", 160, seed=0)
    save_tiny(folder / "model", initializer_range=0.05)
    assert main(finetune(folder, "run")) == 0
    return folder


def finetune(folder: Path, out: str, *more: str) -> list[str]:
    columns = ["--text", "body", "--label", "stars"]
    settings = ["--epochs", "8", "--learning-rate", "3e-3", "--dev-share", "0.2", "--device", "cpu"]
    data, model = str(folder / "reviews.csv"), str(folder / "model")
    return ["finetune", "csv", "--data", data, "--model", model, "--out", str(folder / out), *columns, *settings, *more]


def test_a_run_tells_its_scores_on_stdout_and_the_rest_on_stderr(command: Command, folder: Path) -> None:
    code, out, err = command(*finetune(folder, "again", "--json", "--seeds", "2", "--seed", "3"))
    assert code == 0
    result = json.loads(out)
    assert result["scores"]["accuracy"] == 1.0
    assert [seed["seed"] for seed in result["seeds"]] == [3, 4]
    assert result["baseline"]["metrics"]["accuracy"] > 0.5
    assert "160 rows" in err or "128 rows" in err
    assert {path.name for path in (folder / "again").iterdir()} >= {"model.safetensors", "metrics.json", "README.md"}


def test_a_finished_run_is_not_overwritten(command: Command, folder: Path) -> None:
    code, out, err = command(*finetune(folder, "run"))
    assert (code, out) == (2, "")
    assert "already holds a run" in err
    code, out, err = command(*finetune(folder, "run", "--resume"))
    assert code == 0
    assert "accuracy" in out
    code, _, err = command(*finetune(folder, "run", "--resume", "--batch-size", "8"))
    assert code == 4
    assert "batch_size was 32, now 8" in err


def test_quiet_means_quiet(command: Command, folder: Path) -> None:
    code, out, err = command(*finetune(folder, "quiet", "--quiet", "--no-baseline", "--freeze-encoder"))
    assert (code, err) == (0, "")
    assert "accuracy" in out


def test_evaluate_takes_the_rows_it_did_not_learn_from(command: Command, folder: Path) -> None:
    code, out, _ = command("evaluate", "csv", "--data", folder / "reviews.csv", "--model", folder / "run", "--json")
    assert code == 0
    held_out = json.loads(out)
    assert (held_out["split"], held_out["num_rows"]) == ("dev", 32)
    fresh = write_reviews(folder / "fresh.csv", 50, seed=9)
    code, out, _ = command("evaluate", "csv", "--data", fresh, "--model", folder / "run", "--json")
    whole = json.loads(out)
    assert (whole["num_rows"], whole["scores"]["accuracy"]) == (50, 1.0)
    code, out, _ = command(
        "evaluate", "csv", "--data", fresh, "--model", folder / "run", "--text", "body", "--label", "stars"
    )
    assert code == 0
    assert "accuracy 1.0000" in out


def test_dev_is_never_rows_that_the_run_learned_from(command: Command, folder: Path, tmp_path: Path) -> None:
    write_reviews(tmp_path / "d" / "train.csv", 96, seed=1)
    write_reviews(tmp_path / "d" / "dev.csv", 32, seed=2)
    line = finetune(folder, "with-dev", "--no-baseline")
    line[line.index("--data") + 1] = str(tmp_path / "d")
    assert command(*line)[0] == 0
    model = ("--model", folder / "with-dev", "--json")
    code, out, err = command("evaluate", "csv", "--data", tmp_path / "d/train.csv", "--split", "dev", *model)
    assert (code, out) == (3, "")
    assert "held no rows out of it" in err
    code, out, _ = command("evaluate", "csv", "--data", tmp_path / "d", *model)
    assert json.loads(out)["num_rows"] == 32
    fresh = write_reviews(tmp_path / "fresh.csv", 50, seed=9)
    for trained in ("with-dev", "run"):
        code, out, err = command(
            "evaluate", "csv", "--data", fresh, "--split", "dev", "--model", folder / trained, "--json"
        )
        assert (code, json.loads(out)["num_rows"]) == (0, 50), trained
        assert "scoring all 50 rows" in err
        assert "held out" not in err


def test_a_training_file_that_changed_has_no_held_out_rows(command: Command, folder: Path, tmp_path: Path) -> None:
    file = write_reviews(tmp_path / "reviews.csv", 160, seed=0)
    line = finetune(folder, "moved", "--no-baseline")
    line[line.index("--data") + 1] = str(file)
    assert command(*line)[0] == 0
    model = ("--model", folder / "moved", "--json")
    copy = tmp_path / "copy.csv"
    copy.write_bytes(file.read_bytes())
    code, out, err = command("evaluate", "csv", "--data", copy, "--split", "dev", *model)
    assert (code, json.loads(out)["num_rows"]) == (0, 32)  # the same rows, wherever they lie
    write_reviews(file, 160, seed=3)
    code, out, err = command("evaluate", "csv", "--data", file, *model)
    assert (code, out) == (3, "")
    assert "the rows that it held out cannot be found" in err
    code, out, _ = command("evaluate", "csv", "--data", file, "--split", "train", *model)
    assert json.loads(out)["num_rows"] == 160


def test_predict_writes_every_format(
    command: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_reviews(tmp_path / "new.csv", 20, seed=5)
    right = ["poor", "fine"] * 10
    model = ("--model", folder / "run")
    for name in ("out.jsonl", "out.csv", "out.tsv", "out.parquet"):
        code, out, err = command("predict", *model, source, "--out", tmp_path / name)
        assert (code, out) == (0, "")
        assert "wrote 20 rows" in err
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["predicted"] for line in lines] == right
    for name, delimiter in (("out.csv", ","), ("out.tsv", "\t")):
        with (tmp_path / name).open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter=delimiter))
        assert [row["predicted"] for row in rows] == right
        own = ["text", "predicted", "probability", "p_fine", "p_poor", "truncated", "empty"]
        assert list(rows[0]) == ["body", "stars", *own]
        assert float(rows[0]["probability"]) == pytest.approx(lines[0]["probabilities"]["poor"])
    assert pq.read_table(tmp_path / "out.parquet")["predicted"].to_pylist() == right
    code, out, _ = command("predict", *model, source, "--json")
    assert [json.loads(line)["predicted"] for line in out.splitlines()] == right
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the film was bad\nit is good\n")))
    code, out, _ = command("predict", *model, "-")
    assert [line.split("\t")[0] for line in out.splitlines()] == ["poor", "fine"]
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"new.csv", "out.jsonl", "out.csv", "out.tsv", "out.parquet"}
    assert command("predict", *model, source, "--out", tmp_path / "out.csv")[0] == 2
    assert command("predict", *model, source, "--out", tmp_path / "out.docx")[0] == 2
    assert command("predict", *model, tmp_path / "nothing.csv")[0] == 3


def test_a_run_folder_is_a_model(command: Command, folder: Path) -> None:
    code, out, _ = command("classify", "--model", folder / "run", "the film was bad", "--json")
    assert code == 0
    assert json.loads(out)["label"] == "poor"
    assert pipeline("text-classification", folder / "run")(["it is good"])[0]["label"] == "fine"


def test_bad_data_is_named_with_its_row(command: Command, folder: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("body,stars\na film,fine\nthe end,poor\nno label,\n" + "a film of it,fine\nthe bad end,poor\n" * 5)
    options = ("--model", folder / "model", "--text", "body", "--label", "stars")
    code, out, err = command("finetune", "csv", "--data", bad, *options, "--out", tmp_path / "run")
    assert (code, out) == (3, "")
    assert "bad.csv" in err
    assert "4" in err
    code, _, err = command("finetune", "csv", "--data", tmp_path / "no.csv", *options, "--out", tmp_path / "run")
    assert code == 3
    code, _, err = command("finetune", "sst2", "--data", tmp_path, *options, "--out", tmp_path / "run")
    assert (code, "but task csv does" in err) == (2, True)
    code, _, err = command(
        "finetune", "sst-2", "--data", tmp_path, "--model", folder / "model", "--out", tmp_path / "run"
    )
    assert (code, "did you mean 'sst2'" in err) == (2, True)


def test_a_table_of_excel_with_a_bad_row(command: Command, folder: Path, tmp_path: Path) -> None:
    """Semicolons and the encoding are seen; errors name --on-error, with which the run goes through."""
    rows = (folder / "reviews.csv").read_text(encoding="utf-8").replace(",", ";").splitlines()
    rows[1] = rows[1].replace(";", " café;")
    rows.insert(3, ";fine")
    data = tmp_path / "reviews.csv"
    data.write_text("\n".join(rows) + "\n", encoding="cp1252")
    line = [part if part != str(folder / "reviews.csv") else str(data) for part in finetune(tmp_path, "run")]
    line[line.index(str(tmp_path / "model"))] = str(folder / "model")
    code, _, err = command(*line)
    assert code == 3
    assert "read as cp1252, as in" in err
    assert " café;" in err
    assert f"{data}:4" in err
    assert "--on-error skip" in err
    code, out, err = command(*line, "--on-error", "skip", "--json")
    assert code == 0
    assert json.loads(out)["protocol"]["data"]["bad_rows_left_out"] == {"train": 1, "dev": 0}
    assert "LEFT OUT: 1 row, empty text" in err
    card = Path(json.loads(out)["folder"], "README.md").read_text(encoding="utf-8")
    assert "(1 left out, bad rows among them: 1) |" in card
    good = tmp_path / "good.csv"
    good.write_text("\n".join(rows[:3] + rows[4:]) + "\n", encoding="utf-8")
    code, out, err = command("predict", "--model", tmp_path / "run", good, "--json", "--device", "cpu")
    assert code == 0, err
    assert len(out.splitlines()) == 160
    code, out, err = command("predict", "--model", tmp_path / "run", good, "--delimiter", ";;", "--device", "cpu")
    assert code == 2
    scores = ("evaluate", "csv", "--model", tmp_path / "run", "--device", "cpu", "--data")
    code, out, err = command(*scores, good, "--json")
    assert code == 0, err
    assert json.loads(out)["scores"]["accuracy"] == 1.0
    assert command(*scores, good)[1].startswith("csv, dev (32 rows)"), (
        "the rows held out, in a copy of the training file"
    )
    good.write_text("\n".join(rows[:3] + rows[4:]) + "\n", encoding="cp1252")
    assert command(*scores, good, "--encoding", "utf-8")[0] == 3
    assert command(*scores, good)[0] == 0
    assert command(*scores, good, "--encoding", "cp1252")[0] == 0
    book = Workbook()
    for row in rows[:3] + rows[4:]:
        book.active.append(row.split(";"))  # type: ignore[union-attr]
    book.save(tmp_path / "good.xlsx")
    code, out, err = command(
        "predict", "--model", tmp_path / "run", tmp_path / "good.xlsx", "--json", "--device", "cpu"
    )
    assert code == 0, err
    assert len(out.splitlines()) == 160


def test_options_of_own_files_are_refused_for_known_tasks(command: Command, tmp_path: Path) -> None:
    code, _, err = command(
        "finetune", "cola", "--data", tmp_path, "--model", "m", "--out", tmp_path / "r", "--delimiter", ";"
    )
    assert code == 2
    assert "task cola does not take --delimiter, but task csv does" in err


@pytest.mark.parametrize(
    ("task", "options", "said"),
    [
        ("csv", ["--word-column", "2"], "csv does not take --word-column, but task ner does"),
        ("csv", ["--joiner", "", "--tag-column", "1"], "csv does not take --tag-column, --joiner, but task ner does"),
        ("csv", ["--label-separator", ";"], "--label-separator needs --multi-label"),
        ("ner", ["--text", "body"], "ner does not take --text, but task csv does"),
        (
            "ner",
            ["--delimiter", "tab", "--multi-label"],
            "ner does not take --delimiter, --multi-label, but task csv does",
        ),
        ("sst2", ["--label", "x"], "sst2 does not take --label, but task csv does"),
        ("sst2", ["--tag-column", "1"], "sst2 does not take --tag-column, but task ner does"),
    ],
)
def test_columns_that_a_task_does_not_read_are_refused(
    task: str, options: list[str], said: str, command: Command, folder: Path, tmp_path: Path
) -> None:
    data = folder / "reviews.csv"
    code, _, err = command("evaluate", task, "--data", data, "--model", folder / "run", "--device", "cpu", *options)
    assert (code, said in err) == (2, True), err
    out = tmp_path / "run"
    code, _, err = command("finetune", task, "--data", data, "--model", folder / "model", "--out", out, *options)
    assert (code, said in err) == (2, True), err
    assert not out.exists()
