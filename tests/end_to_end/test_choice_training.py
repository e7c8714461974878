"""Multiple choice from files to a run folder, its scores, and the pipeline that uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit import pipeline
from bertkit.cli import main
from bertkit.inference.evaluate import evaluate_run
from bertkit.inference.runs import open_run
from bertkit.tasks import get_task
from bertkit.tasks.choices.task import ChoiceExample
from bertkit.tasks.registry import task_from_dict
from bertkit.tasks.workflow import workflow_of
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from kinds_data import write_choices
from pipeline_helpers import save_tiny

QUICK = {"learning_rate": 3e-3, "epochs": 12, "precision": "fp32", "batch_size": 8, "max_length": 24}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swag")
    write_choices(folder / "train.csv", 120, seed=0)
    write_choices(folder / "val.csv", 40, seed=1)
    return folder


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("start"), initializer_range=0.05)


@pytest.fixture(scope="module")
def run(start: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    finetune("swag", data, start, out, FinetuneConfig(**QUICK))
    return out


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_run_folder_tells_all(run: Path) -> None:
    told = read(run / "metrics.json")
    assert told["main_metric"] == "accuracy"
    assert told["mean"]["accuracy"] >= 0.9, "a tiny model learns it"
    assert told["baseline"]["chance"] == 0.5
    assert told["protocol"]["what_it_predicts"] == "choice"
    assert told["protocol"]["data"]["train_rows"] == 120
    rows = [json.loads(line) for line in (run / "predictions-dev.jsonl").read_text().splitlines()]
    assert len(rows) == 40
    assert np.mean([row["gold"] == row["predicted"] for row in rows]) == pytest.approx(told["scores"]["accuracy"])
    assert all(sum(row["probabilities"]) == pytest.approx(1) for row in rows)
    worst = json.loads((run / "errors-dev.jsonl").read_text().splitlines()[0])
    lowest = min(rows, key=lambda row: row["probabilities"][row["gold"]])
    assert worst["context"] == lowest["context"]
    card = (run / "README.md").read_text()
    assert "pipeline_tag: multiple-choice" in card
    assert task_from_dict(read(run / "finetune.json")["task"]) == get_task("swag")


def test_evaluation_and_pipeline_say_the_same_as_the_run(run: Path, data: Path) -> None:
    again = evaluate_run("swag", data, open_run(run), device="meta", write=False)
    assert again.protocol["hardware"]["device"] == "cpu"  # where the model is, whatever was asked for
    assert again.scores["accuracy"] == read(run / "metrics.json")["scores"]["accuracy"]
    questions = [
        {"context": row["context"], "start": row["start"], "choices": row["choices"]} for row in again.predictions
    ]
    pipe = pipeline("multiple-choice", model=run, device="cpu")
    for answer, row in zip(pipe(questions), again.predictions, strict=True):
        assert answer["index"] == row["predicted"]
        assert answer["scores"] == pytest.approx(row["probabilities"], abs=1e-5)


def test_text_to_adapt_to_does_not_tell_the_label() -> None:
    workflow = workflow_of(get_task("swag"))
    texts = [workflow.texts_of(ChoiceExample("He ran.", "She", ("sat", "slept"), label)) for label in (0, 1, None)]
    assert texts == [("He ran.",)] * 3


def test_dev_is_held_out_by_context(start: Path, tmp_path: Path) -> None:
    from bertkit.tasks.run_rows import read_rows

    path = write_choices(tmp_path / "train.csv", 60, seed=3)
    rows = read_rows(workflow_of(get_task("swag")), path, FinetuneConfig(dev_share=0.3))
    assert rows.held_out
    assert not {row.context for row in rows.train} & {row.context for row in rows.dev}
    assert len(rows.train) + len(rows.dev) == 60


@pytest.mark.parametrize("task", ["swag", "codah"])
def test_the_command_on_real_files(task: str, start: Path, shared: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    data = shared / "data" / "codah"
    arguments = ["--epochs", "1", "--max-train-rows", "16", "--max-length", "16", "--device", "cpu", "--json"]
    code = main(["finetune", task, "--data", str(data), "--model", str(start), "--out", str(out), *arguments, "-q"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    told = json.loads(captured.out)
    assert told["task"] == task
    assert 0 < told["scores"]["accuracy"] < 1
    assert told["protocol"]["data"]["dev_rows"] == 556


def test_the_command_on_arc_and_the_swag_sample(start: Path, shared: Path, tmp_path: Path, capsys: Any) -> None:
    arguments = ["--epochs", "1", "--max-train-rows", "8", "--max-length", "16", "--device", "cpu", "--json", "-q"]
    for number, data in enumerate(("arc/arc_easy", "swag_sample/sample.jsonl")):
        more = ["--dev-share", "0.3", "--model", str(start), "--out", str(tmp_path / f"run{number}"), "--no-baseline"]
        code = main(["finetune", "swag", "--data", str(shared / "data" / data), *more, *arguments])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        assert json.loads(captured.out)["protocol"]["data"]["dev_rows"] == (548, 4)[number]
