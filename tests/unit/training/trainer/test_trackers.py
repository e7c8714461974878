"""TensorBoard and MLflow get what the log says, of every seed, also of a run that was stopped; and no network."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from bertkit import Callback, MLflowCallback, TensorBoardCallback, finetune
from bertkit.errors import MissingExtraError, ResourceError
from bertkit.system.interrupts import Interrupted
from bertkit.training.trainer import trackers
from bertkit.training.trainer.trackers import Board
from finetune_data import QUICK, labelled_texts

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_pictures")]

ROWS = [{"text": text, "label": label} for text, label in labelled_texts(64, 1)]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, trainer: Any, record: Any) -> None:
        if record["step"] == self.step:
            raise KeyboardInterrupt


def _expected(log: Path) -> dict[str, list[tuple[int, float]]]:
    """Of the log, the points of each curve."""
    found: dict[str, list[tuple[int, float]]] = {}
    for record in map(json.loads, log.read_text().splitlines()):
        place = "held-out" if record.get("event") == "epoch" else "training"
        for name, value in record.items():
            if name not in ("step", "event") and value is not None:
                found.setdefault(f"{place}/{name.removeprefix('dev_')}", []).append((record["step"], value))
    return found


def _board(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(folder))
    board.Reload()
    return {name: [(each.step, each.value) for each in board.Scalars(name)] for name in board.Tags()["scalars"]}


def _agree(found: dict[str, list[tuple[int, float]]], log: Path) -> None:
    expected = _expected(log)
    assert "held-out/accuracy" in expected
    assert found.keys() == expected.keys()
    for name, points in expected.items():
        assert [step for step, _ in found[name]] == [step for step, _ in points], name
        assert [value for _, value in found[name]] == pytest.approx([value for _, value in points], rel=1e-6), name


def test_tensorboard_shows_the_log_of_every_seed(start: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    finetune("csv", ROWS, start, tmp_path / "run", seeds=2, tensorboard=True, **QUICK)  # type: ignore[arg-type]
    for seed in ("seed-0", "seed-1"):
        _agree(_board(tmp_path / "run" / seed / "tensorboard"), tmp_path / "run" / seed / "log.jsonl")


def test_tensorboard_goes_on_where_a_stopped_run_does(start: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    given: Any = ("csv", ROWS, start, tmp_path / "run")
    options: Any = {**QUICK, "checkpoint_every_s": 0}
    board = TensorBoardCallback(tmp_path / "board")
    with pytest.raises(KeyboardInterrupt):
        finetune(*given, callbacks=[board, StopAt(6)], **options)
    finetune(*given, callbacks=[TensorBoardCallback(tmp_path / "board")], resume=True, **options)
    _agree(_board(tmp_path / "board" / "fine-tuning"), tmp_path / "run" / "log.jsonl")


def _mlflow(uri: Path) -> Any:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri.as_uri())
    found = client.get_experiment_by_name("bertkit")
    return client, [] if found is None else client.search_runs([found.experiment_id], order_by=["start_time"])


def _curves(client: Any, run: Any) -> dict[str, list[tuple[int, float]]]:
    return {
        name: [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }


def test_mlflow_has_settings_and_curves_of_every_seed(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    finetune("csv", ROWS, start, "run", seeds=2, mlflow=True, **QUICK)  # type: ignore[arg-type]
    client, runs = _mlflow(tmp_path / "mlruns")
    assert sorted(run.info.run_name for run in runs) == ["run, seed-0", "run, seed-1"]
    for run in runs:
        seed = run.data.params["seed"]
        assert run.info.status == "FINISHED"
        assert (run.data.params["learning_rate"], run.data.params["epochs"]) == ("0.003", "2")
        _agree(_curves(client, run), tmp_path / "run" / f"seed-{seed}" / "log.jsonl")


def test_mlflow_goes_on_in_the_run_of_a_stopped_training(start: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    given: Any = ("csv", ROWS, start, tmp_path / "run")
    options: Any = {**QUICK, "checkpoint_every_s": 0}
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        finetune(*given, callbacks=[MLflowCallback(tmp_path / "ml"), StopAt(6)], **options)
    finetune(*given, callbacks=[MLflowCallback(tmp_path / "ml")], resume=True, **options)
    client, (run,) = _mlflow(tmp_path / "ml")
    assert run.info.status == "FINISHED"
    _agree(_curves(client, run), tmp_path / "run" / "log.jsonl")
    assert len(client.get_metric_history(run.info.run_id, "held-out/accuracy")) == 2


def test_mlflow_that_cannot_be_reached_ends_a_run_before_it_begins(start: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ResourceError, match="MLflow cannot log to file://"):
        finetune("csv", ROWS, start, tmp_path / "run", callbacks=[MLflowCallback(tmp_path / "file")], **QUICK)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_missing_package_is_named_before_anything_is_read(
    name: str, tmp_path: Path, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(MissingExtraError, match=rf"bertkit\[{name}\]"):
        finetune("csv", ROWS, start, tmp_path / "run", **{**QUICK, name: True})  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_tensorboard_deletes_nothing_but_its_own_files(start: Path, tmp_path: Path) -> None:
    """Also in the folder of the run, whose parts for a seed hold the log and the checkpoints."""
    pytest.importorskip("tensorboard")
    board = tmp_path / "board"
    board.mkdir()
    (board / "notes.txt").write_text("mine")
    (board / "events.out.tfevents.1.old").write_text("of an earlier run")
    Board(board).begin(())
    assert (board / "notes.txt").read_text() == "mine"
    assert not (board / "events.out.tfevents.1.old").exists()
    run: Any = ("csv", ROWS, start, tmp_path / "run")
    finetune(*run, callbacks=[TensorBoardCallback(tmp_path / "run")], seeds=2, **QUICK)
    for seed in ("seed-0", "seed-1"):
        _agree(_board(tmp_path / "run" / seed), tmp_path / "run" / seed / "log.jsonl")


def test_mlflow_that_is_lost_at_the_end_does_not_end_a_training(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lost:
        def set_terminated(self, run: str) -> None:
            raise OSError("no answer")

    monkeypatch.setattr(trackers, "require", lambda *_, **__: None)
    monkeypatch.setattr(trackers, "_mlflow_errors", lambda: (OSError,))
    callback = MLflowCallback("http://localhost:1")
    callback._client = Lost()  # type: ignore[assignment]
    callback.on_end(None)  # type: ignore[arg-type]
    assert "MLflow cannot log to http://localhost:1: no answer; continuing without it" in capsys.readouterr().err
