"""Seeds and trials at once, in processes and on a Ray of this machine, are those of one process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import ConfigError
from bertkit.system import task_engines
from bertkit.system.task_engines import Tasks
from bertkit.tasks import csv_task
from bertkit.training.finetuning import hyperparameter_search, run_tasks
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.hyperparameter_search import Trial, search
from bertkit.training.trainer.callbacks import Callback
from finetune_data import QUICK, labelled_texts, write_splits

pytestmark = pytest.mark.usefixtures("without_pictures")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_splits(tmp_path_factory.mktemp("data"), labelled_texts(64, 1), labelled_texts(40, 2))


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield ray
    ray.shutdown()


def outcome(run: Path) -> dict[str, Any]:
    """All that a run says and has, without times and the folder's name."""
    files = {str(path.relative_to(run)): path for path in sorted(run.rglob("*")) if path.is_file()}
    logs = {"log.jsonl", "metrics.json", "README.md", "finetune.json", "search.json"}
    found: dict[str, Any] = {name: path.read_bytes() for name, path in files.items() if path.name not in logs}
    told = json.loads(files["metrics.json"].read_text())
    for seed in (*told["seeds"], *told["replaced"]):
        seed["seconds"] = 0
    for trial in (told["protocol"]["search"] or {}).get("trials", ()):
        trial["seconds"] = 0
    return {**found, "told": told}


# ------------------------------------------------------------------------------------------------------ the runs


@pytest.mark.slow
def test_seeds_in_processes_are_those_of_one(start: Path, data: Path, tmp_path: Path) -> None:
    """Also where the calling process is elsewhere (the run folder is relative), and the models are kept."""
    config = FinetuneConfig(**{**QUICK, "epochs": 1, "keep": "all"}, seeds=2)
    for name, more in {"one": {}, "two": {"workers": 2}}.items():
        finetune(csv_task(data), data, start, tmp_path / name, config.model_copy(update=more), cache=None)
    one, two = (outcome(tmp_path / name) for name in ("one", "two"))
    assert {"seed-0/best/model.safetensors", "seed-1/best/model.safetensors"} < one.keys()
    assert one == two
    assert one["seed-0/best/model.safetensors"] != one["seed-1/best/model.safetensors"]
    again = finetune(csv_task(data), data, start, tmp_path / "two", config, cache=None, resume=True)  # engine is free
    assert [seed.seed for seed in again.seeds] == [0, 1]


@pytest.mark.campaign
def test_seeds_and_trials_on_ray(
    ray: Any, start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    quick: dict[str, Any] = {**QUICK, "epochs": 1}
    for name, more in {"local": {"workers": 2}, "ray": {"workers": 2, "engine": "ray"}}.items():
        config = FinetuneConfig(**quick, seeds=2, search=3, **more)
        finetune(csv_task(data), data, start, name, config, cache=None)
    local, there = (outcome(tmp_path / name) for name in ("local", "ray"))
    assert local == there
    assert local["told"]["protocol"]["search"]["round_size"] == 2
    assert ray.is_initialized(), "a Ray that was there before stays"


@pytest.mark.campaign
def test_machines_that_cannot_train_are_named_before_anything_is_read(
    ray: Any, start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FinetuneConfig(**QUICK, engine="ray")
    here = run_tasks._look(start, tmp_path)

    def says(**changes: Any) -> str:
        monkeypatch.setattr(
            task_engines.AtOnce, "on_each_machine", lambda self, function: {"10.0.0.7": replace(here, **changes)}
        )
        with pytest.raises(ConfigError) as caught:
            finetune(csv_task(data), tmp_path / "missing", start, tmp_path / "run", config, cache=None)
        return str(caught.value)

    assert f"machine 10.0.0.7 of the Ray cluster does not have the model {start}" in says(model=None)
    assert "another model" in says(model="0" * 64)
    assert "does not see the run folder" in says(sees_run=False)
    assert "install the same releases" in says(versions={"bertkit": "0.1.0"})


def test_what_cannot_be_asked_for(start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="search with engine 'ray' needs workers, on which its outcome depends"):
        FinetuneConfig(search=3, engine="ray")
    config = FinetuneConfig(**QUICK, workers=2)
    with pytest.raises(ConfigError, match=r"callbacks \(Follower\) follow a training in this process"):
        finetune(csv_task(data), data, start, tmp_path / "run", config, cache=None, callbacks=[Follower()])
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"no Ray at 127\.0\.0\.1:1: .*check RAY_ADDRESS"):
        finetune(csv_task(data), data, start, tmp_path / "r", FinetuneConfig(**QUICK, engine="ray"), cache=None)
    assert not (tmp_path / "r").exists()


class Follower(Callback):
    """Of the test, not of bertkit."""


# --------------------------------------------------------------------------------------------- rounds of a search


class Pretended:
    """Runs tasks here and in another order, as if at once."""

    at_once = True

    def __init__(self, order: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self.order, self.rounds = order, list[int]()

    def run(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], *, label: str, done: Callable[[Any], Any]
    ) -> None:
        self.rounds.append(len(tasks))
        for task in self.order(tasks):
            done(function(task))

    def on_each_machine(self, function: Callable[[], Any]) -> dict[str, Any]:
        return {}


SPACE = {"learning_rate": [1e-5 * k for k in range(1, 9)], "warmup": [0.0, 0.1, 0.2, 0.3], "batch_size": [16, 32, 64]}


def found_by(
    tasks: Tasks, workers: int, folder: Path, patch: pytest.MonkeyPatch, *, resume: bool = False, stop_after: int = 99
) -> list[dict[str, Any]]:
    """The settings that a search of 24 trials tries on a known surface."""
    tried: list[int] = []

    def score(job: Any, number: int, setting: Any, *, resume: bool) -> Trial:
        if len(tried) >= stop_after:
            raise KeyboardInterrupt
        tried.append(number)
        rate = setting["learning_rate"]
        return Trial(number, dict(setting), 1 - abs(rate - 5e-5) * 1e4 - setting["warmup"] / 3, 0.0)

    patch.setattr(hyperparameter_search, "_try", score)
    patch.setattr(hyperparameter_search, "as_task", lambda job: job)
    job: Any = Job(folder, FinetuneConfig(search=24, workers=workers))
    return [trial.setting for trial in search(job, SPACE, 24, tasks, resume=resume).trials]


class Job:
    """What a search reads of a job."""

    def __init__(self, folder: Path, config: FinetuneConfig) -> None:
        folder.mkdir(exist_ok=True)
        self.run, self.config = type("Run", (), {"path": folder}), config
        self.workflow = type("Workflow", (), {"task": type("Task", (), {"main_metric": "accuracy"})})


def test_a_search_depends_on_the_number_of_workers_and_not_on_who_is_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    one = found_by(task_engines.InTurn(), 1, tmp_path / "one", monkeypatch)
    ahead, back = Pretended(lambda tasks: tasks), Pretended(lambda tasks: tasks[::-1])
    four, other = (found_by(tasks, 4, tmp_path / str(id(tasks)), monkeypatch) for tasks in (ahead, back))
    assert four == other
    assert four != one, "twelve trials that know less"
    assert len(ahead.rounds) == 6
    assert max(ahead.rounds) == 4
    # Killed in the middle of a round: what had ended is not tried again, and the rest is as it would have been.
    with pytest.raises(KeyboardInterrupt):
        found_by(back, 4, tmp_path / "killed", monkeypatch, stop_after=10)
    rest = Pretended(lambda tasks: tasks)
    assert found_by(rest, 4, tmp_path / "killed", monkeypatch, resume=True) == four
    assert sum(rest.rounds) == sum(ahead.rounds) - 10
