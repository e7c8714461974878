"""Several labels a row, long texts in windows, decisions made on dev: from the command line to the pipeline."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from bertkit import pipeline
from bertkit.cli import main
from bertkit.config.decision import read_decision
from bertkit.errors import CheckpointError
from bertkit.inference.runs import load_run, predict_run
from bertkit.training.finetuning.finetune_results import FinetuneResult
from finetune_data import drawn
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
    with drawn():
        assert main(["finetune", "csv", *where, *options.split(), *more.split()]) == 0
    return folder


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_decision_lies_beside_the_model_and_is_what_is_predicted(folder: Path) -> None:
    decision = read_decision(folder / "run")
    reading = {"max_length": 10, "long_texts": "windows", "overlap": 3}
    assert set(decision) == {*reading, "temperature", "measured", "thresholds", "tuned"}
    assert {name: decision[name] for name in reading} == reading
    assert tuple(decision["thresholds"]) == LABELS
    told = json.loads((folder / "run" / "metrics.json").read_text())
    assert told["scores"]["micro_f1"] == decision["tuned"]["fitted"]
    tuned = decision["tuned"]
    (note,) = (note for note in told["notes"] if note.startswith("TUNED ON DEV: thresholds"))
    for value in (tuned["as_trained"], tuned["fitted"], tuned["cross_fitted"]):
        assert f"{value:.4f}" in note
    assert note in (folder / "run" / "README.md").read_text()
    assert f"note: {note}" in FinetuneResult.from_dict(folder / "run", told).render()
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
    texts = [row["text"] for row in rows]
    found = pipe(texts, top_k="chosen")
    assert any(len(run.tokenizer(text)["input_ids"]) > 10 for text in texts), "control: some are read in windows"
    for row, answers in zip(rows, found, strict=True):
        assert sorted(answer["label"] for answer in answers) == row["predicted"]
        for answer in answers:
            assert "truncated" not in answer, "told only with truncation="
            assert answer["score"] == pytest.approx(row["probabilities"][answer["label"]], abs=1e-5)
    everything = pipe(texts, top_k=None, truncation="windows")
    assert pipe(texts, top_k=None, truncation="windows", max_length=10, overlap=3) == everything
    for other in ({"overlap": 0}, {"max_length": 16}):
        assert pipe(texts, top_k=None, truncation="windows", **other) != everything, "control: windows of another kind"
    capsys.readouterr()
    assert main(["classify", "-m", str(folder / "run"), "--json", "-q", *texts]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [sorted(label["label"] for label in line["labels"]) for line in told] == [row["predicted"] for row in rows]
    assert main(["evaluate", "csv", "--data", str(folder / "train.csv"), "--model", str(folder / "run"), "-q"]) == 0
    assert "micro_f1" in capsys.readouterr().out


def test_a_pair_is_not_read_in_windows(folder: Path) -> None:
    pipe = pipeline("text-classification", model=folder / "run", device="cpu")
    with pytest.raises(ValueError, match="reads single texts, got a pair"):
        pipe([("the", "film")], truncation="windows")
    one = pipe("the good film", truncation="windows", top_k=None)
    assert [answer["label"] for answer in one] == [answer["label"] for answer in pipe("the good film", top_k=None)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    """A run of two labels that reads the beginning and the end of long texts, and seldom says the second label."""
    data = tmp_path_factory.mktemp("two")
    chance = random.Random(1)
    rows = ["text,label"]
    for number in range(80):
        words = ["the", *["scene"] * chance.randint(0, 14), LABELS[number % 2], *["film"] * chance.randint(0, 14)]
        rows.append(f"{' '.join(words)},{number % 2}")
    (data / "train.csv").write_text("\n".join(rows) + "\n")
    options = "--epochs 1 --max-length 10 --long-texts head_tail --restarts 0 --tune-thresholds --dev-share 0.4"
    where = ["--data", str(data / "train.csv"), "--model", str(folder / "model"), "--out", str(data / "run")]
    assert main(["finetune", "csv", *where, *options.split(), "--device", "cpu", "-q"]) == 0
    file = data / "run" / "decision.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "thresholds": {"1": 0.99}}))
    with pytest.raises(CheckpointError, match=rf"bertkit inspect --accept {file}$"):
        load_run(data / "run")
    assert main(["inspect", "--accept", str(file)]) == 0
    return data


def test_long_texts_are_cut_as_they_were_in_training(two: Path) -> None:
    run = load_run(two / "run")
    texts = ["the good " + "scene " * 30 + "bad film", "a film", "the " + "film " * 25]
    rows = list(predict_run(run, texts))
    pipe = pipeline("text-classification", model=two / "run", device="cpu")
    with pytest.raises(ValueError, match="the limit is 10"):
        pipe(texts)
    for row, found in zip(rows, pipe(texts, truncation=True, top_k=None), strict=True):
        assert [answer["truncated"] for answer in found] == [row["truncated"]] * 2
        for answer in found:
            assert answer["score"] == pytest.approx(row["probabilities"][answer["label"]], abs=1e-5)
    assert [row["truncated"] for row in rows] == [True, False, True]
    pipe.decision = {name: value for name, value in pipe.decision.items() if name != "long_texts"}
    cut = pipe(texts, truncation=True, top_k=None)
    assert cut[0][0]["score"] != pytest.approx(max(rows[0]["probabilities"].values()), abs=1e-5), "control"
    again = pipe(texts, truncation="head_tail", top_k=None)
    assert again[0][0]["score"] == pytest.approx(max(rows[0]["probabilities"].values()), abs=1e-5)


def test_the_label_of_a_pipeline_is_the_one_of_the_threshold(two: Path, capsys: Any) -> None:
    texts = [line.split(",")[0] for line in (two / "train.csv").read_text().splitlines()[1:]]
    predicted = [row["predicted"] for row in predict_run(load_run(two / "run"), texts)]
    pipe = pipeline("text-classification", model=two / "run", device="cpu")
    best = pipe(texts, truncation=True)
    assert [answer["label"] for answer in best] == predicted == ["0"] * len(texts)
    assert main(["classify", "-m", str(two / "run"), "--truncate", "--json", "-q", *texts[:4]]) == 0
    assert [json.loads(line)["label"] for line in capsys.readouterr().out.splitlines()] == ["0"] * 4
    pipe.decision = {**pipe.decision, "thresholds": {"1": 0.01}}
    assert {answer["label"] for answer in pipe(texts, truncation=True)} == {"1"}, "control: the threshold decides"
