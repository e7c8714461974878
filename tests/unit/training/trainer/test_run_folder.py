"""One process writes a run folder, and a run goes on only with the settings it was begun with."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertkit.errors import CheckpointError, ConfigError, ResourceError
from bertkit.inference.run_files import METRICS
from bertkit.system.atomic_files import write_atomically
from bertkit.system.json_files import read_json
from bertkit.training.finetuning.finetune_folder import FinetuneFolder
from bertkit.training.pretraining.pretrain import PretrainFolder
from bertkit.training.trainer.run_folder import RunFolder, RunLog
from disk_helpers import largest_file

SETTINGS = {"data": "store", "config": {"seed": 0, "learning_rate": 1e-4, "keep": 2}, "shape": (1, 2)}

each_kind = pytest.mark.parametrize("kind", [FinetuneFolder, PretrainFolder])


def log_of(run: RunFolder) -> Path:
    return (run.seed(0) if isinstance(run, FinetuneFolder) else run.path) / "log.jsonl"


def begun(run: RunFolder) -> None:
    """A run of one step."""
    with run.claimed():
        run.check(SETTINGS, resume=False)
        run.begin(SETTINGS)
        log = RunLog(log_of(run), run.how_to_resume)
        log({"step": 1})
        log.close()


@each_kind
def test_a_run_goes_on_only_when_told_and_with_the_same_settings(kind: type[RunFolder], tmp_path: Path) -> None:
    run = kind(tmp_path / "run")
    begun(run)
    with run.claimed():
        run.check(SETTINGS, resume=True)
        with pytest.raises(ConfigError, match=rf"already holds a run\. {kind.how_to_resume}, or choose"):
            run.check(SETTINGS, resume=False)
        other = {**SETTINGS, "config": {**SETTINGS["config"], "seed": 1, "keep": 9}}
        with pytest.raises(CheckpointError, match=r"keep was 2, now 9; seed was 0, now 1"):
            run.check(other, resume=True)
        with pytest.raises(CheckpointError, match=r"\(seed was 0, now 1\)"):
            run.check(other, resume=True, free={"keep"})
        run.check({**SETTINGS, "data": "elsewhere"}, resume=True, free={"data"})
        with pytest.raises(CheckpointError, match="data was 'store', now 'elsewhere'"):
            run.check({**SETTINGS, "data": "elsewhere"}, resume=True)
    assert read_json(run.path / kind.settings_file, dict)["shape"] == [1, 2]


@each_kind
def test_a_log_that_cannot_be_written_says_how_the_run_goes_on(kind: type[RunFolder], tmp_path: Path) -> None:
    log = RunLog(tmp_path / "log.jsonl", kind.how_to_resume)
    with (
        largest_file(10),
        pytest.raises(ResourceError, match=r"File too large\. Free some disk space\. Run") as full,
    ):
        log({"step": 1})
    assert str(full.value).endswith(f"{kind.how_to_resume} from the last checkpoint")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ResourceError, match=r"Is a directory\. Run the same command"):
        RunLog(tmp_path / "folder", kind.how_to_resume)({"step": 1})


@each_kind
def test_settings_without_a_step_bind_nobody(kind: type[RunFolder], tmp_path: Path) -> None:
    run = kind(tmp_path / "run")
    begun(run)
    other = {**SETTINGS, "data": "elsewhere"}
    log_of(run).unlink()
    with run.claimed():
        for resume in (True, False):
            run.check(other, resume=resume)
    states = run.path / run.states.replace("*", "0")
    for left in (states / "step-00000001", log_of(run), run.path / METRICS):
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_text("")
        with run.claimed(), pytest.raises(CheckpointError, match="data was 'store'"):
            run.check(other, resume=True)
        left.unlink()


@each_kind
def test_a_folder_of_something_else_is_refused(kind: type[RunFolder], tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("do not touch")
    with kind(tmp_path).claimed(), pytest.raises(ConfigError, match=r"holds no run \(thesis\.txt\)"):
        kind(tmp_path).check(SETTINGS, resume=True)
    for path in (tmp_path / "thesis.txt", tmp_path / "thesis.txt" / "run"):
        with pytest.raises(ConfigError, match=r"thesis\.txt.* is a file, or lies in one"), kind(path).claimed():
            raise AssertionError("must not be entered")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_one_kind_of_run_does_not_go_on_as_the_other(tmp_path: Path) -> None:
    begun(FinetuneFolder(tmp_path))
    with PretrainFolder(tmp_path).claimed(), pytest.raises(ConfigError, match="holds no run"):
        PretrainFolder(tmp_path).check(SETTINGS, resume=True)


@each_kind
def test_a_second_writer_is_refused_and_a_refused_run_leaves_nothing(kind: type[RunFolder], tmp_path: Path) -> None:
    run = kind(tmp_path / "run")
    with run.claimed():
        with pytest.raises(ConfigError, match="another process is training"), kind(run.path).claimed():
            raise AssertionError("must not be entered")
        assert run.path.exists()
    assert not run.path.exists()
    begun(run)
    assert (run.path / kind.settings_file).exists()
    assert not (run.path / ".lock").exists()


@each_kind
def test_what_a_kill_left_is_removed_and_the_rest_kept(kind: type[RunFolder], tmp_path: Path) -> None:
    run = kind(tmp_path)
    begun(run)
    states = tmp_path / run.states.replace("*", "0")
    (states / ".writing-step-00000002-99").mkdir(parents=True)
    (states / "step-00000001").mkdir()
    (tmp_path / f".{METRICS}.99.tmp").write_text("{")
    with run.claimed():
        assert [path.name for path in states.iterdir()] == ["step-00000001"]
        assert not (tmp_path / f".{METRICS}.99.tmp").exists()
        assert not run.is_finished
        write_atomically(tmp_path / METRICS, "{}")
    assert run.is_finished


def test_paths_of_a_pretraining_run(tmp_path: Path) -> None:
    run = PretrainFolder(tmp_path)
    assert (run.checkpoints, run.model) == (tmp_path / "checkpoints", tmp_path / "model")
