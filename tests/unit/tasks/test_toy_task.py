"""A kind of task is one folder and one line: a toy kind goes through everything that the built-in ones go through."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertkit.errors import CheckpointError
from bertkit.inference.evaluate import evaluate_run
from bertkit.inference.predict_files import predict_file
from bertkit.tasks import get_task, task_from_dict
from bertkit.tasks.registry import KINDS, Kind
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from finetune_data import QUICK, labelled_texts, no_pictures, tiny_start


def write(path: Path, num_rows: int, seed: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{label}\t{text}\n" for text, label in labelled_texts(num_rows, seed)))
    return path


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
