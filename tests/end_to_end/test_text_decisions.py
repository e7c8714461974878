"""Several labels a row, long texts in windows, decisions made on dev: from the command line to the pipeline."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from bertkit import pipeline
from bertkit.cli import main
from bertkit.training.evaluate import load_run, predict_run
from pipeline_helpers import save_tiny

LABELS = ("bad", "good")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on texts of which many have more tokens than a window."""
    folder = tmp_path_factory.mktemp("several")
    save_tiny(folder / "model", initializer_range=0.05)
    chance = random.Random(0)
    rows = ["text,labels"]
    for _ in range(100):
        labels = [label for label in LABELS if chance.random() < 0.5]
        words = ["the", "film", *labels, *["scene"] * chance.randint(0, 14)]
        chance.shuffle(words)
        rows.append(f"{' '.join(words)},{'|'.join(labels)}")
    (folder / "train.csv").write_text("\n".join(rows) + "\n")
    options = (
        "--epochs 6 --learning-rate 3e-3 --max-length 10 --long-texts windows --overlap 3 --restarts 0 --calibrate"
    )
    more = "--tune-thresholds --class-weights balanced --dev-share 0.3 --multi-label --device cpu -q"
    where = ["--data", str(folder / "train.csv"), "--model", str(folder / "model"), "--out", str(folder / "run")]
    assert main(["finetune", "csv", *where, *options.split(), *more.split()]) == 0
    return folder


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_decision_lies_beside_the_model_and_is_what_is_predicted(folder: Path) -> None:
    decision = json.loads((folder / "run" / "decision.json").read_text())
    assert set(decision) == {"temperature", "measured", "thresholds", "tuned"}
    assert tuple(decision["thresholds"]) == LABELS
    told = json.loads((folder / "run" / "metrics.json").read_text())
    assert told["scores"]["micro_f1"] == decision["tuned"]["fitted"]
    assert told["protocol"]["long_texts"] == "windows"
    for row in lines(folder / "run" / "predictions-dev.jsonl"):
        chosen = [name for name in LABELS if row["probabilities"][name] >= decision["thresholds"][name]]
        assert row["predicted"] == chosen
        assert row["truncated"] is False
    assert (folder / "run" / "reliability.png").stat().st_size > 5000


def test_prediction_evaluation_and_pipeline_decide_alike(folder: Path, capsys: Any) -> None:
    rows = lines(folder / "run" / "predictions-dev.jsonl")
    run = load_run(folder / "run")
    again = list(predict_run(run, [row["text"] for row in rows]))
    for row, other in zip(rows, again, strict=True):
        assert other["predicted"] == row["predicted"]
        assert other["probabilities"] == pytest.approx(row["probabilities"], abs=1e-5)
    pipe = pipeline("text-classification", model=folder / "run", device="cpu")
    found = pipe([row["text"] for row in rows], truncation="windows", max_length=10, top_k="chosen")
    assert any(len(run.tokenizer(row["text"])["input_ids"]) > 10 for row in rows), "control: some are read in windows"
    for row, answers in zip(rows, found, strict=True):  # the pipeline's windows overlap by a quarter, the run's by 3
        if len(run.tokenizer(row["text"])["input_ids"]) <= 10:
            assert sorted(answer["label"] for answer in answers) == row["predicted"]
            for answer in answers:
                assert answer["score"] == pytest.approx(row["probabilities"][answer["label"]], abs=1e-5)
    assert main(["evaluate", "csv", "--data", str(folder / "train.csv"), "--model", str(folder / "run"), "-q"]) == 0
    assert "micro_f1" in capsys.readouterr().out


def test_a_pair_is_not_read_in_windows(folder: Path) -> None:
    pipe = pipeline("text-classification", model=folder / "run", device="cpu")
    with pytest.raises(ValueError, match="reads single texts, got a pair"):
        pipe([("the", "film")], truncation="windows")
    one = pipe("the good film", truncation="windows", top_k=None)
    assert [answer["label"] for answer in one] == [answer["label"] for answer in pipe("the good film", top_k=None)]
