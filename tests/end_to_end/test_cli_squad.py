"""From files of questions to a run folder that answers; what was decided on dev is used ever after."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertkit.bulk import compute
from bertkit.bulk import planner as bulk
from bertkit.bulk.cuts import Size
from bertkit.tasks.spans.metrics import squad2_metrics, squad_metrics
from bertkit.tasks.spans.task import SQUAD, SQUAD2
from bertkit.tasks.workflow import workflow_of
from kind_runs import Made
from pipeline_helpers import Command


@pytest.fixture(scope="module", params=["answers", "answers or none"])
def made(request: pytest.FixtureRequest, kinds: Callable[[str], Made]) -> Made:
    return kinds(request.param)


def test_a_run_keeps_what_it_decided(made: Made) -> None:
    task, told = made.kind.task, made.told()
    assert told["baseline"]["metrics"].keys() == told["scores"].keys() - {"loss"}
    decision = json.loads((made.run / "decision.json").read_text())
    assert (decision["max_length"], decision["doc_stride"]) == (40, 12)
    assert ("null_threshold" in decision) == (task == "squad2")
    assert any(note.startswith("TUNED ON DEV") for note in told["notes"]) == (task == "squad2")
    assert ("TUNED ON DEV" in (made.run / "README.md").read_text()) == (task == "squad2")
    rows = made.rows()
    for row in rows:
        assert row["predicted"] == row["context"][row["start"] : row["end"]]
    assert any(row["windows"] > 1 and row["f1"] == 1 and row["start"] > 100 for row in rows)
    assert {row["predicted"] == "" for row in rows} == ({True, False} if task == "squad2" else {False})


def test_the_command_says_what_the_evaluation_said(made: Made, tmp_path: Path, command: Command) -> None:
    task, out = made.kind.task, tmp_path / "predictions.json"
    asked = ("--model", made.run, "--file", made.data / "dev.json", "--out", out, "--device", "cpu", "-q")
    assert command("answer", *asked)[0] == 0
    predictions = json.loads(out.read_text())
    assert predictions == {row["id"]: row["predicted"] for row in made.rows()}
    examples = workflow_of(SQUAD2 if task == "squad2" else SQUAD).read(made.data, "dev")
    references = {example.id: [answer.text for answer in example.answers] for example in examples}
    metrics = squad2_metrics if task == "squad2" else squad_metrics
    assert metrics(predictions, references)["f1"] == pytest.approx(100 * made.told()["scores"]["f1"], abs=1e-9)


def test_predicting_a_file_goes_on_after_a_stop(made: Made, tmp_path: Path, capsys: Any) -> None:
    data, folder = made.data, made.run
    with pytest.MonkeyPatch.context() as patch:
        how = bulk.How(size=Size(rows=20))
        assert bulk.predict_file(folder, data / "dev.json", tmp_path / "whole.jsonl", how=how) == 48
        whole = (tmp_path / "whole.jsonl").read_bytes()
        write, calls = compute.write_part, []

        def dies(*args: Any, **others: Any) -> None:
            calls.append(1)
            if len(calls) == 3:
                raise MemoryError
            write(*args, **others)

        patch.setattr(compute, "write_part", dies)
        with pytest.raises(MemoryError):
            bulk.predict_file(folder, data / "dev.json", tmp_path / "parts.jsonl", how=how)
        patch.setattr(compute, "write_part", write)
        assert bulk.predict_file(folder, data / "dev.json", tmp_path / "parts.jsonl", how=how) == 48
    assert "resuming after 40 finished rows" in capsys.readouterr().err
    assert (tmp_path / "parts.jsonl").read_bytes() == whole
    told = [json.loads(line) for line in whole.splitlines()]
    assert [row["predicted"] for row in told] == [row["predicted"] for row in made.rows()]


def test_files_that_the_official_scripts_read(made: Made) -> None:
    task, data, folder = made.kind.task, made.data, made.run / "seed-0"
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
