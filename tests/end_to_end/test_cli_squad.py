"""From files of questions to a run folder that answers; what was decided on dev is used ever after."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertkit import BertModel, pipeline
from bertkit.cli import main
from bertkit.inference import predict_files as bulk
from bertkit.inference import runs
from bertkit.tasks.spans.metrics import squad2_metrics, squad_metrics
from bertkit.tasks.spans.task import SQUAD, SQUAD2
from bertkit.tasks.workflow import workflow_of
from kinds_data import write_questions
from pipeline_helpers import save_tiny


def run(*argv: object) -> None:
    assert main([str(part) for part in argv]) == 0


@pytest.fixture(scope="module", params=["squad", "squad2"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    """Task, data folder, run folder."""
    task, root = request.param, tmp_path_factory.mktemp(request.param)
    data = root / "data"
    data.mkdir()
    for name, count, seed in (("train", 256, 1), ("dev", 48, 2)):
        write_questions(data / f"{name}.json", count, seed, no_answers=task == "squad2")
    start = save_tiny(root / "start", BertModel)
    settings = ("--epochs", 5, "--learning-rate", "3e-3", "--max-length", 40, "--doc-stride", 12, "--batch-size", 16)
    run("finetune", task, "--data", data, "--model", start, "--out", root / "run", *settings, "--device", "cpu", "-q")
    return task, data, root / "run"


def test_a_run_learns_and_keeps_its_protocol(trained: tuple[str, Path, Path], capsys: Any) -> None:
    task, data, folder = trained
    told = json.loads((folder / "metrics.json").read_text())
    assert told["scores"]["f1"] > 0.9
    assert told["baseline"]["metrics"].keys() == told["scores"].keys() - {"loss"}
    assert {"doc_stride": 12, "max_query_length": 64, "max_answer_length": 30}.items() <= told["protocol"].items()
    assert told["protocol"]["data"]["max_length"] == 40
    decision = json.loads((folder / "decision.json").read_text())
    assert (decision["max_length"], decision["doc_stride"]) == (40, 12)
    assert ("null_threshold" in decision) == (task == "squad2")
    card = (folder / "README.md").read_text()
    assert "question-answering" in card
    assert any(note.startswith("TUNED ON DEV") for note in told["notes"]) == (task == "squad2")
    assert ("TUNED ON DEV" in card) == (task == "squad2")
    rows = [json.loads(line) for line in (folder / "predictions-dev.jsonl").read_text().splitlines()]
    assert len(rows) == 48
    for row in rows:
        assert row["predicted"] == row["context"][row["start"] : row["end"]]
    assert any(row["windows"] > 1 and row["f1"] == 1 and row["start"] > 100 for row in rows)
    capsys.readouterr()
    run("evaluate", task, "--data", data, "--model", folder, "--json", "--device", "cpu", "-q")
    again = json.loads(capsys.readouterr().out)
    assert again["scores"] == pytest.approx(told["scores"], abs=1e-6)


def test_the_pipeline_says_what_the_evaluation_said(trained: tuple[str, Path, Path], tmp_path: Path) -> None:
    task, data, folder = trained
    examples = workflow_of(SQUAD2 if task == "squad2" else SQUAD).read(data, "dev")
    pipe = pipeline("question-answering", model=folder, device="cpu")
    answers = pipe(examples, align_to_words=False)
    rows = [json.loads(line) for line in (folder / "predictions-dev.jsonl").read_text().splitlines()]
    assert [answer["answer"] for answer in answers] == [row["predicted"] for row in rows]
    assert [answer["score"] for answer in answers] == pytest.approx([row["probability"] for row in rows], abs=1e-4)
    if task == "squad2":
        assert {answer["answer"] == "" for answer in answers} == {True, False}
    else:
        assert all(answer["answer"] for answer in answers)
    out = tmp_path / "predictions.json"
    run("answer", "--model", folder, "--file", data / "dev.json", "--out", out, "--device", "cpu", "-q")
    predictions = json.loads(out.read_text())
    references = {example.id: [answer.text for answer in example.answers] for example in examples}
    lines = tmp_path / "predicted.jsonl"
    run("predict", data / "dev.json", "--model", folder, "--out", lines, "--device", "cpu", "-q")
    assert {r["id"]: r["predicted"] for r in map(json.loads, lines.read_text().splitlines())} == predictions
    metrics = squad2_metrics if task == "squad2" else squad_metrics
    scores = json.loads((folder / "metrics.json").read_text())["scores"]
    assert metrics(predictions, references)["f1"] == pytest.approx(100 * scores["f1"], abs=1e-9)


def test_predicting_a_file_goes_on_after_a_stop(trained: tuple[str, Path, Path], tmp_path: Path, capsys: Any) -> None:
    _, data, folder = trained
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "QUESTIONS", replace(runs.QUESTIONS, items=20))
        assert bulk.predict_file(folder, data / "dev.json", tmp_path / "whole.jsonl") == 48
        whole = (tmp_path / "whole.jsonl").read_bytes()
        append, calls = bulk._append, []

        def dies(*args: Any) -> None:
            calls.append(1)
            if len(calls) == 3:
                raise MemoryError
            append(*args)

        patch.setattr(bulk, "_append", dies)
        with pytest.raises(MemoryError):
            bulk.predict_file(folder, data / "dev.json", tmp_path / "parts.jsonl")
        patch.setattr(bulk, "_append", append)
        assert bulk.predict_file(folder, data / "dev.json", tmp_path / "parts.jsonl") == 48
    assert "resuming after 40 finished rows" in capsys.readouterr().err
    assert (tmp_path / "parts.jsonl").read_bytes() == whole
    told = [json.loads(line) for line in whole.splitlines()]
    dev = [json.loads(line) for line in (folder / "predictions-dev.jsonl").read_text().splitlines()]
    assert [row["predicted"] for row in told] == [row["predicted"] for row in dev]


def test_files_that_the_official_scripts_read(trained: tuple[str, Path, Path]) -> None:
    task, data, folder = trained
    folder = folder / "seed-0"
    rows = [json.loads(line) for line in (folder / "predictions-dev.jsonl").read_text().splitlines()]
    answers = json.loads((folder / "answers-dev.json").read_text())
    assert answers == {row["id"]: row["predicted"] for row in rows}
    best = json.loads((folder / "n-best-dev.json").read_text())
    assert best.keys() == answers.keys()
    if task == "squad2":
        nulls = json.loads((folder / "null-odds-dev.json").read_text())
        examples = workflow_of(SQUAD2).read(data, "dev")
        references = {example.id: [answer.text for answer in example.answers] for example in examples}
        raw = {identity: listed[0]["text"] for identity, listed in best.items()}
        scores = squad2_metrics(raw, references, nulls)
        told = json.loads((folder / "metrics.json").read_text())["scores"]
        assert scores["best_f1"] == pytest.approx(100 * told["f1"], abs=1e-9)
