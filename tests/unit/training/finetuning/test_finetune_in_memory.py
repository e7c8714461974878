"""A call of ``finetune`` is the command with the same names, and rows in memory train as the same rows of a file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bertkit import FinetuneConfig, finetune
from bertkit.cli import main
from bertkit.errors import CheckpointError, ConfigError, DataError, InputError
from bertkit.inference.evaluate import evaluate_run
from bertkit.tasks import csv_task
from bertkit.training.finetuning.several_heads import finetune_heads
from finetune_data import QUICK, labelled_texts

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_pictures")]

OPTIONS = " ".join(
    f"--{name.replace('_', '-')} {value}" if not isinstance(value, bool) else f"--no-{name}"
    for name, value in QUICK.items()
)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return pd.DataFrame(labelled_texts(64, 1), columns=["body", "stars"])


@pytest.fixture(scope="module")
def file(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "f.csv"
    frame.to_csv(path, index=False)
    return path


def _files(run: Path, *, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """All that a run has written, without times and places."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in run.rglob("*") if path.is_file()):
        name = str(path.relative_to(run))
        if path.suffix in (".json", ".jsonl"):
            lines = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
            found[name] = [_without(json.loads(line), {"seconds", *leave_out}) for line in lines]
        else:
            found[name] = path.read_bytes()
    return found


def _without(value: Any, names: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(part, names) for key, part in value.items() if key not in names and "_per_s" not in key}
    return [_without(part, names) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("has_dev", [pytest.param(False, marks=pytest.mark.campaign), True])
def test_the_call_is_the_command(has_dev: bool, start: Path, file: Path, tmp_path: Path) -> None:
    called, typed, dev = tmp_path / "called" / "run", tmp_path / "typed" / "run", tmp_path / "more.csv"
    pd.DataFrame(labelled_texts(8, 2), columns=["body", "stars"]).to_csv(dev, index=False)
    given = dev if has_dev else None
    made = finetune("csv", data=file, dev=given, text="body", label="stars", model=start, out=called, **QUICK)
    assert made.protocol["data"]["dev_file"] == (dev.name if has_dev else file.name)
    line = f"finetune csv --data {file} --text body --label stars --model {start} --out {typed} {OPTIONS} --device cpu"
    assert main([*line.split(), *(["--dev", str(dev)] if has_dev else [])]) == 0
    ours, theirs = _files(called), _files(typed)
    assert ours.keys() == theirs.keys()
    assert {"finetune.json", "metrics.json", "model.safetensors", "predictions-dev.jsonl"} <= ours.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


def test_rows_in_memory_train_as_the_file(start: Path, file: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    common: dict[str, Any] = {"text": "body", "label": "stars", "model": start, **QUICK}
    a = finetune("csv", data=file, out=tmp_path / "a" / "run", **common)
    b = finetune("csv", data=frame, out=tmp_path / "b" / "run", **common)
    places = ("data", "train_file", "dev_file", "about", "where", "line", "row", "file")
    ours, theirs = _files(tmp_path / "a" / "run", leave_out=places), _files(tmp_path / "b" / "run", leave_out=places)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    rows = [json.loads(line) for line in (tmp_path / "b" / "run" / "predictions-dev.jsonl").read_text().splitlines()]
    assert [frame["body"].iloc[row["row"]] for row in rows] == [row["text"] for row in rows]
    assert a.protocol["data"]["data_sha256"] == b.protocol["data"]["data_sha256"]
    assert (a.protocol["data"]["train_file"], b.protocol["data"]["train_file"]) == ("f.csv", "<data>")


def test_rows_in_memory_are_evaluated_as_a_file(start: Path, file: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained = finetune("csv", data=frame, out=run, model=start, text="body", label="stars", **QUICK)
    again = evaluate_run("csv", frame, run)
    assert (again.split, again.scores) == ("dev", pytest.approx(trained.scores))  # the rows that were held out
    new = pd.DataFrame(labelled_texts(20, 9), columns=["body", "stars"])
    new.to_csv(tmp_path / "new.csv", index=False)
    expected = evaluate_run("csv", tmp_path / "new.csv", run)
    for data in (new, new.to_dict("records"), new.to_dict("list"), {"test": new}):
        split = "test" if isinstance(data, dict) and "test" in data else "dev"
        found = evaluate_run("csv", data, run, split)
        assert (found.scores, found.num_rows) == (expected.scores, 20)
        assert found.protocol["data_sha256"] == expected.protocol["data_sha256"]
    assert len(list(run.glob("evaluation-data-????????.json"))) == 1
    assert expected.protocol["file"] == "new.csv"


def test_a_run_from_memory_goes_on_with_the_same_rows_alone(start: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    common: dict[str, Any] = {"model": start, "out": tmp_path / "run", "text": "body", "label": "stars", **QUICK}
    first = finetune("csv", data=frame, **common)
    assert finetune("csv", data=frame, resume=True, **common).scores == first.scores
    more = finetune("csv", data=frame.to_dict("records"), resume=True, seeds=2, **common)
    assert [seed.seed for seed in more.seeds] == [0, 1]
    for seeds in (2, 3):
        with pytest.raises(CheckpointError, match="hash of train was"):
            finetune("csv", data=frame[::-1], resume=True, seeds=seeds, **common)


def test_dev_rows_are_a_keyword_or_a_part(start: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    train, dev = frame[:48], frame[48:]
    common: dict[str, Any] = {"model": start, "text": "body", "label": "stars", **QUICK}
    a = finetune("csv", data=train, dev=dev, out=tmp_path / "a", **common)
    b = finetune("csv", data={"train": train, "validation": dev}, out=tmp_path / "b", **common)
    assert a.scores == b.scores
    assert a.protocol["data"] == b.protocol["data"]
    assert (a.protocol["data"]["dev_file"], a.protocol["data"]["dev_rows"]) == ("<dev>", 16)
    assert not a.protocol["data"]["dev_held_out_of_train"]


def test_settings_are_keywords_or_a_config_or_both(start: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    config = FinetuneConfig(**{**QUICK, "epochs": 5})
    made = finetune("csv", frame, start, tmp_path / "run", config, epochs=1, text="body", label="stars")
    assert made.protocol["epochs"] == 1
    assert made.protocol["learning_rate"] == QUICK["learning_rate"]
    shutil.rmtree(tmp_path / "run")
    for options, message in (
        ({"lable": "stars"}, "'lable'.*did you mean 'label'"),
        ({"learning_rat": 1e-3}, "'learning_rat'.*did you mean 'learning_rate'"),
        ({"num_train_epochs": 1}, "'num_train_epochs'; write epochs="),
        ({"epochs": "many"}, "epochs = 'many'"),
    ):
        with pytest.raises(ConfigError, match=message):
            finetune("csv", frame, start, tmp_path / "run", text="body", **options)  # type: ignore[arg-type]
    task = csv_task_of(frame, tmp_path)
    with pytest.raises(ConfigError, match="text= is for a task by its name"):
        finetune(task, frame, start, tmp_path / "run", text="body")
    assert not (tmp_path / "run").exists()


def csv_task_of(frame: pd.DataFrame, folder: Path) -> Any:
    frame.to_csv(folder / "own.csv", index=False)
    return csv_task(folder / "own.csv", text="body", label="stars")


def test_bad_rows_are_named_or_left_out(start: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    dirty = frame.astype({"stars": object})
    dirty.loc[7, "stars"] = None
    common: dict[str, Any] = {"model": start, "text": "body", "label": "stars", **QUICK}
    with pytest.raises(DataError, match=r"<data>: row 7 \(counted from 0\): column 'stars' has no label"):
        finetune("csv", dirty, out=tmp_path / "run", **common)
    made = finetune("csv", dirty, out=tmp_path / "run", on_error="skip", **common)
    assert made.protocol["data"]["bad_rows_left_out"]["train"] == 1


@pytest.mark.parametrize("frozen", [False, pytest.param(True, marks=pytest.mark.campaign)])
def test_heads_of_several_tasks_in_memory_are_those_of_files(
    frozen: bool, start: Path, frame: pd.DataFrame, tmp_path: Path
) -> None:
    rows = frame.rename(columns={"body": "text", "stars": "label"})
    names = pd.DataFrame({"tokens": [text.split() for text in rows["text"]], "tags": [["O"] for _ in range(len(rows))]})
    names["tags"] = [["B-PER", *["O"] * (len(words) - 1)] for words in names["tokens"]]
    rows.to_csv(tmp_path / "stars.csv", index=False)
    names.to_json(tmp_path / "names.jsonl", orient="records", lines=True)
    config = FinetuneConfig(**QUICK, freeze_encoder=frozen)
    made = finetune_heads({"stars": ("csv", rows), "names": ("ner", names)}, start, tmp_path / "a", config)
    files = {"stars": ("csv", tmp_path / "stars.csv"), "names": ("ner", tmp_path / "names.jsonl")}
    assert made.heads == finetune_heads(files, start, tmp_path / "b", config).heads
    with pytest.raises(CheckpointError, match="hash of train was"):
        finetune_heads(
            {"stars": ("csv", rows[::-1]), "names": ("ner", names)}, start, tmp_path / "a", config, resume=True
        )


def test_what_is_no_head_is_refused(start: Path, frame: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"head stars must be a task and its data, \('sst2', 'DATA'\), got DataFrame"):
        finetune_heads({"stars": frame}, start, tmp_path / "run")  # type: ignore[dict-item]
    with pytest.raises(DataError, match=r"<stars>.*no rows"):
        finetune_heads({"stars": ("csv", frame[:0])}, start, tmp_path / "run")
