"""A kind of task is one folder and one line: a toy kind answers tables, texts and files, exported and without torch."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bertkit import BertForSequenceClassification, pipeline
from bertkit.cli import main
from bertkit.errors import CheckpointError, InputError
from bertkit.inference.predict_table import predict_table
from bertkit.tasks.registry import KINDS, Kind, task_to_dict
from pipeline_helpers import save_tiny
from toy_task.task import TONE

TESTS = Path(__file__).parents[2]
KIND = Kind("toy_task", "Tone", {"tone": "task:TONE"})
TEXTS = ["good film", "the end", "good " * 40]
#: A command without the packages of :data:`lite_command.ABSENT`, and with the toy kind's line in the registry.
LITE = f"""
import sys
from importlib.machinery import PathFinder
sys.path.insert(0, {str(TESTS)!r})
from lite_command import LiteFinder, run
sys.meta_path[:] = [LiteFinder if finder is PathFinder else finder for finder in sys.meta_path]
from bertkit.tasks.registry import KINDS, Kind
KINDS["tone"] = Kind("toy_task", "Tone")
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(KINDS, "tone", KIND)
    folder = save_tiny(
        tmp_path / "run", BertForSequenceClassification, num_labels=1, problem_type="regression", id2label={0: "tone"}
    )
    settings = {"task": task_to_dict(TONE), "config": {"max_length": 16}}
    (folder / "finetune.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


@pytest.mark.campaign
@pytest.mark.slow
def test_a_new_kind_of_task_answers_from_its_folder(run: Path, tmp_path: Path) -> None:
    expected = predict_table(run, {"text": TEXTS})["predicted"].tolist()
    assert len(set(expected)) == 3
    file = tmp_path / "test.tone"
    file.write_text("".join(text + "\n" for text in TEXTS), encoding="utf-8")
    outs = [tmp_path / f"out{suffix}" for suffix in (".jsonl", ".csv", ".parquet")]
    for out in outs:
        assert main(["predict", str(file), "--model", str(run), "--out", str(out), "--device", "cpu"]) == 0
    lines = [json.loads(line) for line in outs[0].read_text().splitlines()]
    with outs[1].open(newline="") as rows:
        cells = [float(row["predicted"]) for row in csv.DictReader(rows)]
    assert [line["predicted"] for line in lines] == cells == pq.read_table(outs[2])["predicted"].to_pylist()
    assert cells == pytest.approx(expected, abs=1e-6)

    pipe = pipeline("tone", model=run, precision="fp32")
    assert [row["predicted"] for row in pipe(TEXTS)] == pytest.approx(expected, abs=1e-6)
    assert pipe({"text": TEXTS[0]})["predicted"] == pytest.approx(expected[0], abs=1e-6)

    exported = tmp_path / "exported"
    assert main(["export", str(run), "--out", str(exported), "--quiet"]) == 0
    assert predict_table(exported, {"text": TEXTS})["predicted"] == pytest.approx(expected, abs=1e-4)
    assert pipeline("tone", model=exported)(TEXTS[1])["predicted"] == pytest.approx(expected[1], abs=1e-4)
    arguments = ["predict", str(file), "--model", str(exported), "--json"]
    done = subprocess.run([sys.executable, "-c", LITE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line)["predicted"] for line in done.stdout.splitlines()]
    assert said == pytest.approx(expected, abs=1e-4)


def test_what_is_no_run_of_the_kind(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a str, got int"):
        pipeline("tone", model=run)({"text": 5})
    (run / "finetune.json").unlink()
    with pytest.raises(CheckpointError, match="is no run folder"):
        pipeline("tone", model=run)
    with pytest.raises(InputError, match="no pipeline for task 'tune'"):
        pipeline("tune", model=run)
