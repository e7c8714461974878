"""A kind of task is one folder and one line: a toy kind goes through everything that the built-in ones go through."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bertkit.bulk.planner import predict_file
from bertkit.errors import CheckpointError
from bertkit.inference.evaluate import evaluate_run
from bertkit.tasks import get_task, task_from_dict
from bertkit.tasks.registry import KINDS, Kind
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from finetune_data import QUICK, labelled_texts, no_pictures, tiny_start
from toy_task.metrics import closeness

REPOSITORY = Path(__file__).resolve().parents[3]


def write(path: Path, num_rows: int, seed: int, separator: str = "\t") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{label}{separator}{text}\n" for text, label in labelled_texts(num_rows, seed)))
    return path


def commands(*argvs: Sequence[str | Path]) -> list[dict[str, Any]]:
    """What each command returns and prints, with the toy kind in the registry from the start."""
    ours = [str(REPOSITORY / name) for name in ("src", "tests")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*ours, os.environ.get("PYTHONPATH", "")])}
    words = json.dumps([[str(word) for word in argv] for argv in argvs])
    done = subprocess.run(
        [sys.executable, "-m", "toy_task"], input=words, capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_the_command_line_takes_a_new_kind_from_its_folder(tmp_path: Path) -> None:
    """Its options in the help, its settings in the run folder; fine-tuning, evaluation and prediction."""
    start, data, run = tiny_start(tmp_path / "start"), tmp_path / "data", tmp_path / "run"
    write(data / "train.tone", 240, 1, "|")
    write(data / "dev.tone", 40, 2, "|")
    fresh, told = write(tmp_path / "fresh.tone", 20, 3, "|"), tmp_path / "told.jsonl"
    train = ("finetune", "tone", "--data", data, "--model", start, "--out", run, "--no-baseline", "--device", "cpu")
    quick = {**QUICK, "epochs": 4, "learning_rate": 0.01, "separator": "|", "tone_steps": 4}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in quick.items() if name != "baseline"]
    usual = ("--data", data, "--model", start, "--out", tmp_path / "no")
    listed, page, trained, evaluated, predicted, option, setting = commands(
        ("finetune", "--help"),
        ("finetune", "tone", "--help"),
        (*train, *options),
        ("evaluate", "tone", "--data", fresh, "--model", run, "--split", "train", "--json", "-q", "--device", "cpu"),
        ("predict", fresh, "--model", run, "--out", told, "-q", "--device", "cpu"),
        ("finetune", "sst2", *usual, "--separator", ";", "--device", "cpu"),
        ("finetune", "swag", *usual, "--tone-steps", "3", "--device", "cpu"),
    )
    assert "tone " in listed["out"]
    assert "how good does it sound?" in listed["out"]
    assert all(f" {each} " in page["out"] for each in ("--separator", "--tone-steps", "--epochs"))
    assert not any(f" {each} " in page["out"] for each in ("--text", "--pooling", "--word-column"))

    assert trained["code"] == 0, trained["err"]
    saved = json.loads((run / "finetune.json").read_text())
    assert (saved["task"]["kind"], saved["task"]["separator"]) == ("tone", "|")
    assert saved["config"]["tone_steps"] == 4
    protocol = json.loads((run / "metrics.json").read_text())["protocol"]
    assert protocol["tone_steps"] == 4

    assert evaluated["code"] == 0, evaluated["err"]
    assert json.loads(evaluated["out"])["scores"]["closeness"] > 0.7
    assert predicted["code"] == 0, predicted["err"]
    tones = [json.loads(line)["predicted"] for line in told.read_text().splitlines()]
    right = [label for _, label in labelled_texts(20, 3)]
    assert closeness(tones, right) == pytest.approx(json.loads(evaluated["out"])["scores"]["closeness"], abs=1e-6)

    assert (option["code"], setting["code"]) == (2, 2)
    assert "task sst2 does not take --separator, but task tone does" in option["err"]
    assert "--tone-steps 3 has no effect in task swag: it is for tones (tone)" in setting["err"]


def test_a_new_kind_of_task_needs_one_folder_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "tone", Kind("toy_task", "Tone", {"tone": "task:TONE"}))
    task = get_task("tone")
    start, data = tiny_start(tmp_path / "start"), tmp_path / "data"
    write(data / "train.tone", 320, 1)
    config = FinetuneConfig(**{**QUICK, "epochs": 4, "learning_rate": 0.01}, dev_share=0.25, restarts=0)
    with no_pictures():
        result = finetune(task, data, start, tmp_path / "run", config, cache=None)
    assert result.seeds[0].scores["closeness"] > 0.7
    assert result.protocol["data"]["dev_held_out_of_train"]

    dev = write(tmp_path / "fresh.tone", 40, 2)
    evaluation = evaluate_run("tone", dev, tmp_path / "run", "train")
    assert evaluation.scores["closeness"] > 0.7
    again = evaluate_run(task, data, tmp_path / "run")
    assert again.scores["closeness"] == pytest.approx(result.seeds[0].scores["closeness"])

    assert predict_file(tmp_path / "run", dev, tmp_path / "out.jsonl") == 40
    tones = [json.loads(line)["predicted"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert tones == pytest.approx([row["predicted"] for row in evaluation.predictions], abs=1e-6)

    saved = json.loads((tmp_path / "run" / "finetune.json").read_text())["task"]
    assert saved["kind"] == "tone"
    assert task_from_dict(saved) == task
    monkeypatch.delitem(KINDS, "tone")
    with pytest.raises(CheckpointError, match="no tasks of kind 'tone', only text, span, token, choice, rerank, "):
        evaluate_run("sst2", dev, tmp_path / "run")
