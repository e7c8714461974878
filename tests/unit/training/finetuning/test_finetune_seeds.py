"""Which seeds a run has: others in place of dead ones, and those that are added to a finished run."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import CheckpointError
from bertkit.inference.run_files import SETTINGS
from bertkit.system.json_files import read_json
from bertkit.tasks import csv_task
from bertkit.training.finetuning import finetune as finetune_module
from bertkit.training.finetuning import finetune_folder as runfolder
from bertkit.training.finetuning import fit as fit_module
from bertkit.training.finetuning import run_tasks
from bertkit.training.finetuning import seed_run as one_seed
from bertkit.training.finetuning.finetune import finetune, load_run_config
from bertkit.training.finetuning.finetune_results import SeedResult
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.fit import fit_classifier
from finetune_data import QUICK, labelled_texts, write_splits
from training_helpers import tiny_model, toy_config, toy_features, toy_task

pytestmark = pytest.mark.usefixtures("without_pictures")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_splits(tmp_path_factory.mktemp("data"), labelled_texts(64, 1), labelled_texts(40, 2))


# ------------------------------------------------------------------------------------------------- restarts


def dead_seeds(monkeypatch: pytest.MonkeyPatch, seeds: set[int]) -> list[tuple[int, bool]]:
    """Make the runs of some seeds end dead; the list gets every seed that runs, and whether it may be replaced."""
    asked: list[tuple[int, bool]] = []
    run_seed = run_tasks.run_seed

    def pretend(job: Any, seed: int, *, resume: bool, replaceable: bool) -> SeedResult:
        asked.append((seed, replaceable))
        return replace(run_seed(job, seed, resume=resume, replaceable=False), dead=seed in seeds)

    monkeypatch.setattr(run_tasks, "run_seed", pretend)
    return asked


@pytest.mark.slow
def test_the_next_seed_takes_the_place_of_a_dead_one(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = dead_seeds(monkeypatch, {0, 2})
    config = FinetuneConfig(**{**QUICK, "epochs": 1}, seeds=2, restarts=2)
    result = finetune(csv_task(data), data, start, tmp_path / "run", config, cache=None)
    assert asked == [(0, True), (2, True), (3, False), (1, False)]
    assert [seed.seed for seed in result.seeds] == [3, 1]
    assert [seed.seed for seed in result.replaced] == [0, 2]
    assert result.mean["accuracy"] == statistics.fmean(seed.scores["accuracy"] for seed in result.seeds)
    assert any("RESTARTED: seed 0, 2" in note for note in result.notes)
    assert "restarting with seed 2" in capsys.readouterr().err
    again = finetune_module.FinetuneResult.from_dict(result.folder, read_json(result.folder / "metrics.json", dict))
    assert again.to_dict() == result.to_dict()
    assert "RESTARTED" in again.render()


def test_restarts_are_bounded_and_none_is_made_of_a_frozen_encoder(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = dead_seeds(monkeypatch, set(range(100)))
    config = FinetuneConfig(**{**QUICK, "epochs": 1}, restarts=1)
    result = finetune(csv_task(data), data, start, tmp_path / "run", config, cache=None)
    assert [seed for seed, _ in asked] == [0, 1]
    assert any("DEAD RUN: seed 1" in note for note in result.notes)
    asked.clear()
    frozen = config.model_copy(update={"freeze_encoder": True, "learning_rate": 1e-2, "restarts": 3})
    finetune(csv_task(data), data, start, tmp_path / "frozen", frozen, cache=None)
    assert asked == [(0, False)]


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1e-9, 3e-3])
def test_a_run_that_may_be_replaced_ends_at_half_if_it_is_dead(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    train = toy_features(48)
    config = toy_config(learning_rate=rate, epochs=8)

    def steps(**options: Any) -> int:
        return fit_classifier(tiny_model(), toy_task(), train, None, config, seed=0, **options).progression.step

    assert steps() == 24
    assert steps(end_when_dead=True) == 24  # so few updates prove nothing
    monkeypatch.setattr(fit_module, "DEAD_FROM_STEP", 6)
    assert steps(end_when_dead=True) == (12 if rate == 1e-9 else 24)


# ----------------------------------------------------------------------------------------------- more seeds


def told(run: Path) -> dict[str, Any]:
    """The result without its times."""
    found = read_json(run / "metrics.json", dict)
    return {**found, **{name: [{**one, "seconds": 0} for one in found[name]] for name in ("seeds", "replaced")}}


@pytest.mark.slow
@pytest.mark.parametrize("dead", [set(), {0}, {1, 4}])
def test_seeds_added_to_a_finished_run_are_those_of_one_that_had_them_from_the_beginning(
    dead: set[int], start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_seeds(monkeypatch, dead)
    few, many = (FinetuneConfig(**{**QUICK, "epochs": 1}, seeds=seeds, restarts=2) for seeds in (2, 4))
    once, twice = tmp_path / "once", tmp_path / "twice"
    finetune(csv_task(data), data, start, once, many, cache=None)
    first = finetune(csv_task(data), data, start, twice, few, cache=None)
    written = (twice / "seed-0/metrics.json").stat().st_mtime_ns
    second = finetune(csv_task(data), data, start, twice, many, resume=True, cache=None)
    assert (len(first.seeds), len(second.seeds)) == (2, 4)
    assert told(twice) == told(once)
    for name in ("model.safetensors", "predictions-dev.jsonl", "finetune.json"):
        assert (twice / name).read_bytes() == (once / name).read_bytes(), name
    assert (twice / "seed-0/metrics.json").stat().st_mtime_ns == written, "what is done is not done again"
    with pytest.raises(CheckpointError, match="seeds was 4, now 2"):
        finetune(csv_task(data), data, start, twice, few, resume=True, cache=None)


def interrupted(*given: Any, **named: Any) -> None:
    raise KeyboardInterrupt


def test_a_result_stays_while_seeds_are_added_and_not_longer(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, run = FinetuneConfig(**{**QUICK, "epochs": 1}), tmp_path / "run"
    finetune(csv_task(data), data, start, run, config, cache=None)
    before = told(run)

    more = config.model_copy(update={"seeds": 2})
    with monkeypatch.context() as patch:
        patch.setattr(one_seed, "fit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            finetune(csv_task(data), data, start, run, more, resume=True, cache=None)
    assert told(run) == before
    assert load_run_config(run) == more, "so that --resume goes on"
    with monkeypatch.context() as patch:
        patch.setattr(runfolder, "_link", interrupted)
        with pytest.raises(KeyboardInterrupt):
            finetune(csv_task(data), data, start, run, more, resume=True, cache=None)
    assert not (run / "metrics.json").exists(), "or it would tell of a model that is being replaced"
    assert len(finetune(csv_task(data), data, start, run, more, resume=True, cache=None).seeds) == 2


def test_seeds_are_not_added_on_other_data(start: Path, tmp_path: Path) -> None:
    data, run = write_splits(tmp_path / "data", labelled_texts(40, 1), labelled_texts(40, 2)), tmp_path / "run"
    one, two = (FinetuneConfig(**{**QUICK, "epochs": 1}, seeds=seeds) for seeds in (1, 2))
    finetune(csv_task(data), data, start, run, one, cache=None)
    before = told(run)
    settings = read_json(run / SETTINGS, dict)
    write_splits(data, labelled_texts(40, 3), labelled_texts(40, 2))
    with pytest.raises(CheckpointError, match=r"other settings \(hash of all was .*; hash of train was"):
        finetune(csv_task(data), data, start, run, two, resume=True, cache=None)
    assert told(run) == before
    del settings["examples"]  # as older versions wrote it: then the protocol tells
    (run / SETTINGS).write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=r"other settings \(hash of all was [^;]*\)\. Resume"):
        finetune(csv_task(data), data, start, run, two, resume=True, cache=None)


def test_rows_that_go_from_train_to_dev_are_other_data(start: Path, tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    rows = labelled_texts(80, 1)
    one, two = (FinetuneConfig(**{**QUICK, "epochs": 1}, seeds=seeds) for seeds in (1, 2))
    write_splits(data, rows[:50], rows[50:])
    finetune(csv_task(data), data, start, run, one, cache=None)
    write_splits(data, rows[:40], rows[40:])
    with pytest.raises(CheckpointError, match=r"other settings \(hash of dev was .*; hash of train was"):
        finetune(csv_task(data), data, start, run, two, resume=True, cache=None)


def test_a_number_of_seeds_can_be_taken_back_until_one_of_them_is_finished(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, run = FinetuneConfig(**{**QUICK, "epochs": 1}), tmp_path / "run"
    finetune(csv_task(data), data, start, run, one, cache=None)
    fifty = one.model_copy(update={"seeds": 50})
    with monkeypatch.context() as patch:
        patch.setattr(one_seed, "fit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            finetune(csv_task(data), data, start, run, fifty, resume=True, cache=None)
    two = one.model_copy(update={"seeds": 2})
    assert len(finetune(csv_task(data), data, start, run, two, resume=True, cache=None).seeds) == 2
    with pytest.raises(CheckpointError, match="seeds was 2, now 1"):
        finetune(csv_task(data), data, start, run, one, resume=True, cache=None)
    assert not list(run.glob(".*")), "a published file that was there already leaves no second name"


@pytest.mark.slow
@pytest.mark.parametrize("other", [False, True])
def test_evaluations_of_a_model_go_when_it_is_replaced(other: bool, start: Path, data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = finetune(
        csv_task(data), data, start, run, FinetuneConfig(**{**QUICK, "epochs": 1}, seeds=2, keep="all"), cache=None
    )
    (run / "evaluation-dev.json").write_text("{}")
    chosen = next(seed.seed for seed in result.seeds if (seed.seed != result.chosen_seed) == other)
    runfolder.FinetuneFolder(run).publish(chosen)
    assert (run / "evaluation-dev.json").exists() != other
