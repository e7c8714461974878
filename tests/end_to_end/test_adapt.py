"""Adapting to a task's text: what is read, what is left behind, how it goes on, and both scores side by side."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from bertkit import BertForMaskedLM, BertModel, pipeline
from bertkit.cli import main
from bertkit.errors import CheckpointError, ConfigError, DataError
from bertkit.system.interrupts import Interrupted
from bertkit.tasks import csv_task
from bertkit.training.adapt import AdaptResult, adapt
from bertkit.training.adapt_settings import AdaptConfig
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer.callbacks import AnyTrainer
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import Record, StepResult
from bertkit.training.trainer.run_folder import RunLog
from pipeline_helpers import save_tiny

ADAPT = AdaptConfig(adapt_steps=6, adapt_length=24)
TUNE = FinetuneConfig(
    epochs=1, learning_rate=3e-3, max_length=16, max_train_rows=40, restarts=0, baseline=False, dev_share=0.2
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapt")
    save_tiny(folder / "model", BertForMaskedLM, initializer_range=0.05)
    chance = random.Random(0)
    rows = ["text,label"]
    for number in range(100):
        words = [chance.choice(["the", "film", "scene", "of"]) for _ in range(chance.randint(4, 12))]
        rows.append(f"{' '.join(words)} {('good', 'bad')[number % 2]} {number},{'yn'[number % 2]}")
    (folder / "train.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def result(folder: Path) -> AdaptResult:
    data = folder / "train.csv"
    return adapt(csv_task(data), data, folder / "model", folder / "run", TUNE, ADAPT)


def texts_of(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_text().splitlines()]


def test_the_text_is_that_of_all_training_rows_and_of_no_other(folder: Path, result: AdaptResult) -> None:
    read = set(texts_of(folder / "run" / "corpus.jsonl"))
    dev = {json.loads(line)["text"] for line in (folder / "run/with/predictions-dev.jsonl").read_text().splitlines()}
    assert len(read) == 80, "labels are cut to 40 rows, texts are not"
    assert len(dev) == 20
    assert not read & dev
    assert result.text["texts"] == 80
    assert result.text["steps"] == 6


def test_both_runs_are_there_with_their_gain(folder: Path, result: AdaptResult) -> None:
    told = json.loads((folder / "run" / "adapt.json").read_text())["result"]
    metrics = [json.loads((folder / "run" / name / "metrics.json").read_text()) for name in ("with", "without")]
    assert told["with"]["mean"] == metrics[0]["mean"]
    assert told["without"]["mean"] == metrics[1]["mean"]
    starts = [metric["protocol"]["start_checkpoint"]["sha256"] for metric in metrics]
    assert starts[0] != starts[1], "the adapted model is another"
    assert metrics[0]["protocol"]["data"]["data_sha256"] == metrics[1]["protocol"]["data"]["data_sha256"]
    assert result.gain("accuracy") == pytest.approx(metrics[0]["mean"]["accuracy"] - metrics[1]["mean"]["accuracy"])
    assert "not adapted" in result.render()
    assert pipeline("text-classification", model=folder / "run" / "with", device="cpu")("the film")[0]["label"] in "yn"
    assert pipeline("fill-mask", model=folder / "run" / "adapted" / "model", device="cpu")("the [MASK]")


def test_the_same_command_goes_on_and_another_is_refused(folder: Path, result: AdaptResult, capsys: Any) -> None:
    data = folder / "train.csv"
    before = {path: path.stat().st_mtime_ns for path in (folder / "run").rglob("model.safetensors")}
    again = adapt(csv_task(data), data, folder / "model", folder / "run", TUNE, ADAPT)
    assert again.to_dict() == result.to_dict()
    assert {path: path.stat().st_mtime_ns for path in (folder / "run").rglob("model.safetensors")} == before
    with pytest.raises(CheckpointError, match=r"other settings \(adapt_steps was"):
        adapt(csv_task(data), data, folder / "model", folder / "run", TUNE, AdaptConfig(adapt_steps=7, adapt_length=24))
    (folder / "other").mkdir(exist_ok=True)
    (folder / "other" / "file").write_text("mine")
    with pytest.raises(ConfigError, match="not empty and holds no run"):
        adapt(csv_task(data), data, folder / "model", folder / "other", TUNE, ADAPT)
    where = ["--data", str(data), "--model", str(folder / "model"), "--out", str(folder / "other")]
    assert main(["adapt", "csv", *where, "--device", "cpu", "-q"]) == 2
    assert "not empty and holds no run" in capsys.readouterr().err


def test_a_folder_that_got_no_text_takes_other_settings(folder: Path, tmp_path: Path) -> None:
    data, run = folder / "train.csv", tmp_path / "run"
    with pytest.raises(DataError, match="missing"):
        adapt(csv_task(data), tmp_path / "missing.csv", folder / "model", run, TUNE, ADAPT)
    small = ADAPT.model_copy(update={"compare": False, "adapt_steps": 1})
    assert adapt(csv_task(data), data, folder / "model", run, TUNE, small).text["steps"] == 1


def test_seeds_are_added_to_both_runs(folder: Path, result: AdaptResult) -> None:
    data, run = folder / "train.csv", folder / "run"
    masked = (run / "adapted/model/model.safetensors").stat().st_mtime_ns
    more = TUNE.model_copy(update={"seeds": TUNE.seeds + 1})
    found = adapt(csv_task(data), data, folder / "model", run, more, ADAPT)
    assert found.plain is not None
    assert len(found.adapted.seeds) == len(found.plain.seeds) == TUNE.seeds + 1
    assert found.adapted.seeds[: TUNE.seeds] == result.adapted.seeds
    assert (run / "adapted/model/model.safetensors").stat().st_mtime_ns == masked
    with pytest.raises(CheckpointError, match=r"other settings \(seeds was 2, now 1"):
        adapt(csv_task(data), data, folder / "model", run, TUNE, ADAPT)


def test_entities_by_name_and_by_column(folder: Path, tmp_path: Path, capsys: Any) -> None:
    words = ("1 the O", "2 film B-PER", "3 of O", "4 scene B-LOC")
    (tmp_path / "train.conll").write_text("\n\n".join("\n".join(words[: 2 + n % 3]) for n in range(30)) + "\n")
    config = TUNE.model_copy(update={"baseline": True, "max_train_rows": None})
    small = ADAPT.model_copy(update={"compare": False, "adapt_steps": 2, "adapt_length": 100})
    result = adapt("ner", tmp_path / "train.conll", folder / "model", tmp_path / "run", config, small)
    assert result.adapted.task == "ner"
    assert "word features + linear" in result.render()
    assert "TF-IDF" not in result.render()
    where = ["--data", str(tmp_path / "train.conll"), "--model", str(folder / "model"), "--out", str(tmp_path / "cli")]
    more = "--word-column 2 --tag-column 3 --joiner _ --adapt-steps 2 --adapt-length 24 --no-compare --epochs 1"
    assert main(["adapt", "ner", *where, *more.split(), "--max-length", "16", "--device", "cpu", "-q"]) == 0, capsys
    assert "the_film_of" in texts_of(tmp_path / "cli" / "corpus.jsonl")


def test_both_parts_have_the_precision_and_a_new_head_begins_with_the_frequencies(
    folder: Path, tmp_path: Path, capsys: Any
) -> None:
    model = save_tiny(tmp_path / "model", BertModel, initializer_range=0.02)
    where = ["--data", str(folder / "train.csv"), "--model", str(model), "--out", str(tmp_path / "run")]
    more = "--text text --label label --adapt-steps 1 --adapt-length 24 --no-compare --epochs 1 --precision bf16 --json"
    assert main(["adapt", "csv", *where, *more.split(), "--device", "cpu", "-q"]) == 0, capsys
    settings = json.loads((tmp_path / "run/adapted/metrics.json").read_text())["settings"]
    assert (settings["precision"], settings["output_bias"]) == ("bf16", "unigram")
    text = json.loads(capsys.readouterr().out)["text"]
    assert text["loss"] == pytest.approx(text["unigram_entropy"], abs=0.7), "the loss of the only step"


def test_a_folder_goes_on_in_the_format_that_it_began_with(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, small = folder / "train.csv", ADAPT.model_copy(update={"compare": False, "adapt_steps": 1})
    for fastest, seeds in (("bf16", 1), ("fp32", 2)):  # on another machine
        monkeypatch.setattr("bertkit.training.finetuning.finetune.fastest_precision", lambda device, name=fastest: name)
        config = TUNE.model_copy(update={"seeds": seeds})
        found = adapt(csv_task(data), data, folder / "model", tmp_path / "run", config, small)
        assert found.adapted.protocol["precision"] == "bf16"
    settings = json.loads((tmp_path / "run/adapted/metrics.json").read_text())["settings"]
    assert settings["precision"] == "bf16"
    frozen = TUNE.model_copy(update={"freeze_encoder": True})
    monkeypatch.setattr("bertkit.training.finetuning.finetune.fastest_precision", lambda device: "bf16")
    found = adapt(csv_task(data), data, folder / "model", tmp_path / "frozen", frozen, small)
    assert found.adapted.protocol["precision"] == "fp32"


def test_steps_follow_the_amount_of_text() -> None:
    assert AdaptConfig(adapt_steps=7).num_steps(10**9, 128) == 7
    assert AdaptConfig(adapt_epochs=3).num_steps(126 * 64, 128) == 6
    assert AdaptConfig().num_steps(100, 128) == 20
    assert AdaptConfig().num_steps(126 * 32 * 1000, 128) == 5000, "bounded, but never less than one pass"
    assert AdaptConfig().num_steps(126 * 32 * 9000, 128) == 9000
    short = AdaptConfig(adapt_epochs=3).pretraining(62 * 320, seed=0, longest=64)
    assert (short.max_steps, short.max_seq_length) == (30, 64), "examples are as long as the model allows"


def test_a_run_that_stops_while_fine_tuning_says_how_it_is_continued(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, run, logs, write = folder / "train.csv", tmp_path / "run", [], RunLog.__call__

    def write_and_stop(log: RunLog, record: Record) -> None:
        write(log, record)
        if log.path.is_relative_to(run / "with"):
            logs.append(log)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(RunLog, "__call__", write_and_stop)
    with pytest.raises(Interrupted, match=r"saved in .*step-00000001\. Run the same command to continue$"):
        adapt(csv_task(data), data, folder / "model", run, TUNE, ADAPT)
    assert logs[0].how_to_resume == "Run the same command to continue", "what a full disk makes it say"


def test_a_search_that_stops_says_so_too(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def step_and_stop(trainer: AnyTrainer) -> StepResult:
        if trainer.options.label == "trial 1":
            os.kill(os.getpid(), signal.SIGTERM)
        return step(trainer)

    data, step = folder / "train.csv", Trainer.train_step
    monkeypatch.setattr(Trainer, "train_step", step_and_stop)
    searching = TUNE.model_copy(update={"protocol": "original", "learning_rate": None})
    with pytest.raises(Interrupted, match=r"saved in .*trial-000.*\. Run the same command to continue$"):
        adapt(csv_task(data), data, folder / "model", tmp_path / "run", searching, ADAPT)
