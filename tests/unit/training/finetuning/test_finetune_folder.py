"""What a fine-tuning run keeps on the disk, and what its files and its card say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bertkit
from bertkit.errors import CheckpointError, ConfigError, ResourceError
from bertkit.tasks import csv_task, get_task
from bertkit.training.finetuning.finetune import finetune, load_run_config
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from finetune_data import QUICK, labelled_texts, write_splits

pytestmark = pytest.mark.usefixtures("without_pictures")

SETTINGS = {**QUICK, "epochs": 1, "baseline": False}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_splits(tmp_path_factory.mktemp("data"), labelled_texts(32, 1), labelled_texts(20, 2))


def models(run: Path) -> set[str]:
    return {str(path.parent.relative_to(run)) for path in run.rglob("model.safetensors")}


@pytest.mark.slow
def test_one_model_is_kept_by_default_and_a_run_can_be_pruned(start: Path, data: Path, tmp_path: Path) -> None:
    task, run = csv_task(data), tmp_path / "run"
    every = FinetuneConfig(**SETTINGS, seeds=2, keep="all")
    result = finetune(task, data, start, run, every, cache=None)
    chosen = f"seed-{result.chosen_seed}/best"
    assert models(run) >= {".", "seed-0/best", "seed-1/best"}
    default = every.model_copy(update={"keep": "best"})
    finetune(task, data, start, run, FinetuneConfig(**SETTINGS, seeds=2), resume=True, cache=None)
    assert models(run) >= {".", "seed-0/best", "seed-1/best"}, "nothing is deleted unless asked for"
    changed = FinetuneConfig(**SETTINGS, seeds=2, keep="best", compile="off")
    again = finetune(task, data, start, run, changed, resume=True, cache=None)
    assert models(run) == {".", chosen}
    assert again == result
    assert (run / "model.safetensors").samefile(run / chosen / "model.safetensors"), "one copy with two names"
    fresh = finetune(task, data, start, tmp_path / "fresh", default, cache=None)
    assert models(tmp_path / "fresh") == {".", f"seed-{fresh.chosen_seed}/best"}
    more = finetune(task, data, start, run, FinetuneConfig(**SETTINGS, seeds=3), resume=True, cache=None)
    assert models(run) == {".", f"seed-{more.chosen_seed}/best"}
    assert (run / "model.safetensors").samefile(run / f"seed-{more.chosen_seed}/best/model.safetensors")


def test_a_disk_without_room_is_told_before_the_first_step(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100_000))
    said: list[Any] = []

    class Steps(bertkit.Callback):
        def on_step(self, trainer: Any, record: Any) -> None:
            said.append(record)

    with pytest.raises(ResourceError, match=r"the model and the training states .* MB are free.*another --out"):
        finetune(
            csv_task(data), data, start, tmp_path / "r", FinetuneConfig(**SETTINGS), cache=None, callbacks=[Steps()]
        )
    assert not said


def test_a_run_goes_on_in_the_format_that_it_began_with(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another processor too, as where a run in a home folder is resumed on another machine."""
    task, run = csv_task(data), tmp_path / "run"
    settings = {**SETTINGS, "precision": None, "restarts": 0}
    monkeypatch.setattr("bertkit.training.finetuning.finetune.fastest_precision", lambda device: "bf16")
    first = finetune(task, data, start, run, FinetuneConfig(**settings), cache=None)
    assert first.protocol["precision"] == "bf16" == load_run_config(run).precision
    monkeypatch.setattr("bertkit.training.finetuning.finetune.fastest_precision", lambda device: "fp32")
    more = finetune(task, data, start, run, FinetuneConfig(**settings, seeds=2), resume=True, cache=None)
    assert more.protocol["precision"] == "bf16"
    assert more.seeds[0] == first.seeds[0]
    with pytest.raises(CheckpointError, match="precision was 'bf16', now 'fp32'"):
        finetune(task, data, start, run, FinetuneConfig(**{**settings, "precision": "fp32"}, seeds=2), resume=True)
    other = finetune(task, data, start, tmp_path / "other", FinetuneConfig(**settings), cache=None)
    assert other.protocol["precision"] == "fp32"


def test_another_metric_can_choose(start: Path, data: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**SETTINGS, metric_for_best="macro_f1")
    result = finetune(csv_task(data), data, start, tmp_path / "run", config, cache=None)
    assert result.main_metric == "macro_f1"
    assert "best dev macro_f1" in result.protocol["selection"]
    assert json.loads((tmp_path / "run/finetune.json").read_text())["task"]["main_metric"] == "macro_f1"
    assert load_run_config(tmp_path / "run") == config
    for task, metric, known in (
        (csv_task(data), "f2", "accuracy, macro_f1"),
        (get_task("sst2"), "macro_f1", "accuracy"),
        (get_task("squad"), "exact_match", "f1"),
    ):
        with pytest.raises(ConfigError, match=f"can be judged by {known}$"):
            finetune(task, data, start, tmp_path / "x", FinetuneConfig(metric_for_best=metric), cache=None)


@pytest.mark.slow
def test_a_run_of_the_first_release_is_not_stopped_early_when_it_goes_on(
    start: Path, data: Path, tmp_path: Path
) -> None:
    """Its settings do not know "keep", and its training states say that patience is None."""
    run, config = tmp_path / "run", FinetuneConfig(**{**SETTINGS, "epochs": 12})
    result = finetune(csv_task(data), data, start, run, config, cache=None)
    assert result.protocol["patience"] == 3
    settings = json.loads((run / "finetune.json").read_text())
    for name in ("keep", "metric_for_best"):
        del settings["config"][name]
    (run / "finetune.json").write_text(json.dumps(settings))
    more = config.model_copy(update={"seeds": 2})
    again = finetune(csv_task(data), data, start, run, more, resume=True, cache=None)
    assert again.protocol["patience"] is None
    assert {seed.epochs for seed in again.seeds if seed not in result.seeds} == {12}


def front_matter(card: str) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    loaded: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return loaded


def test_the_card_says_what_the_hub_reads_and_what_was_decided(start: Path, data: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**SETTINGS, class_weights="balanced", calibrate=True)
    result = finetune(csv_task(data), data, start, tmp_path / "run", config, cache=None)
    card = (tmp_path / "run/README.md").read_text()
    front = front_matter(card)
    assert front["pipeline_tag"] == "text-classification"
    assert front["metrics"] == ["accuracy", "f1"]
    assert "base_model" not in front, "a local folder has no name on the Hub"
    assert "datasets" not in front
    told = front["model-index"][0]["results"][0]["metrics"]
    assert {one["name"]: one["value"] for one in told}["accuracy"] == pytest.approx(result.scores["accuracy"], abs=1e-6)
    temperature = json.loads((tmp_path / "run/decision.json").read_text())["temperature"]
    assert f"| temperature (chosen on dev) | {temperature:g} |" in card
    assert "| class weights | balanced |" in card


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux only")
@pytest.mark.parametrize("name", [b"caf\xe9", pytest.param("caf\u00e9".encode(), marks=pytest.mark.campaign)])
def test_names_that_are_not_utf8_or_not_ascii(name: bytes, start: Path, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(name)
    shutil.copytree(data, folder / "data")
    shutil.copytree(start, folder / "start")
    code = f"""
import os, sys
from pathlib import Path
from bertkit.cli import main
folder = Path(os.fsdecode({bytes(folder / "x")!r})).parent
sys.exit(main(["finetune", "csv", "--data", str(folder / "data"), "--model", str(folder / "start"), "--out",
    str(folder / "run"), "--epochs", "1", "--max-length", "16", "--no-baseline", "--device", "cpu"]))
"""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": os.environ["PATH"]}
    for number, environment in enumerate((dict(os.environ), plain)):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        card = (folder / "run" / "README.md").read_text(encoding="utf-8")
        assert 'model="run"' in card
        (folder / "run").rename(folder / f"run-{number}")
