"""What the log of a run says, also for TensorBoard and for MLflow: callbacks that ask no network unless told to."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.errors import ConfigError, ResourceError, require
from bertkit.system.console import say
from bertkit.system.json_files import printable, read_json, write_json
from bertkit.system.paths import user_path
from bertkit.training.trainer.callbacks import AnyTrainer, Callback
from bertkit.training.trainer.loop_options import Record
from bertkit.training.trainer.run_folder import LOG, read_log

if TYPE_CHECKING:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient
    from torch.utils.tensorboard import SummaryWriter

TENSORBOARD = "tensorboard"
#: Where MLflow writes if nothing says where, and the file beside the log that names its run.
MLRUNS, MLFLOW_RUN = "mlruns", "mlflow.json"
#: Values that MLflow takes at once.
_MOST_METRICS = 1000
_MOST_PARAM_BYTES = 6000
#: Folders of seeds and of trials.
_PART = re.compile(r"(seed|trial)-\d+")


def scalars(record: Record) -> dict[str, float]:
    """The finite numbers of a line of the log, as ``training/loss`` or ``held-out/accuracy``."""
    place = "held-out" if record.get("event") == "epoch" else "training"
    return {
        f"{place}/{name.removeprefix('dev_')}": float(value)
        for name, value in record.items()
        if name not in ("step", "event") and isinstance(value, int | float) and math.isfinite(value)
    }


class Board:
    """TensorBoard files in a folder, in place of earlier ones.

    Where they cannot be written, a message says so and a run goes on.
    """

    def __init__(self, folder: Path) -> None:
        require("tensorboard", extra="tensorboard", needed_for="writing TensorBoard files")
        self.folder = folder
        self._writer: SummaryWriter | None = None

    def begin(self, records: Iterable[Record]) -> None:
        """Write anew what the log says so far."""
        self._try(self._open)
        for record in records:
            self.write(record)

    def write(self, record: Record) -> None:
        """Write a line of the log."""
        self._try(lambda: self._write(record))

    def close(self) -> None:
        """Write what is kept in memory."""
        if self._writer is not None:
            self._try(self._writer.close)

    def _open(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Nothing else: the folder may be that of the run.
        for earlier in self.folder.glob("events.out.tfevents.*"):
            earlier.unlink()
        self._writer = SummaryWriter(str(self.folder))

    def _write(self, record: Record) -> None:
        if self._writer is not None:
            for name, value in scalars(record).items():
                self._writer.add_scalar(name, value, record["step"])

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            say(f"{self.folder} cannot be written: {error.strerror or error}; continuing without it")
            self._writer = None


class TensorBoardCallback(Callback):
    """Writes TensorBoard files of each seed: ``tensorboard --logdir RUN`` shows them.

    Args:
        folder: for a folder a seed; None writes ``RUN/seed-N/tensorboard``.

    Raises:
        MissingExtraError: TensorBoard is not installed (extra ``tensorboard``).
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        require("tensorboard", extra="tensorboard", needed_for="writing TensorBoard files")
        self._folder = None if folder is None else user_path(folder)
        self._board: Board | None = None

    def on_begin(self, trainer: AnyTrainer) -> None:
        home = _home(trainer, "TensorBoardCallback(folder)" if self._folder is None else "")
        own = None if self._folder is None else self._folder / trainer.options.label.replace(" ", "-")
        assert own is not None or home is not None
        self._board = Board(own or home / TENSORBOARD)  # type: ignore[operator]
        self._board.begin(_so_far(home))

    def on_step(self, trainer: AnyTrainer, record: Record) -> None:
        assert self._board is not None, "a run begins"
        self._board.write(record)

    on_epoch = on_step

    def on_end(self, trainer: AnyTrainer) -> None:
        assert self._board is not None, "a run begins"
        self._board.close()


class MLflowCallback(Callback):
    """Logs settings, losses and scores of each seed as a run of MLflow.

    Args:
        tracking_uri: a folder, or what MLflow takes, such as ``sqlite:///mlflow.db`` or the address of a server; None
            takes the environment's MLFLOW_TRACKING_URI, else the folder ``mlruns``, so that nothing leaves the machine.
        experiment: its name; made if it does not exist.
        run_name: of the runs; None takes the name of the run folder and the seed.

    Raises:
        MissingExtraError: MLflow is not installed (extra ``mlflow``).
    """

    def __init__(
        self, tracking_uri: str | Path | None = None, *, experiment: str = "bertkit", run_name: str | None = None
    ) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # which would report to its makers
        require("mlflow", extra="mlflow", needed_for="logging to MLflow")
        uri = str(tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or MLRUNS)
        if "://" not in uri and not uri.startswith("file:"):
            uri = user_path(uri).absolute().as_uri()
        if uri.startswith("file:"):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # which MLflow 3 asks before it uses a folder
        self._uri, self._experiment, self._run_name = uri, experiment, run_name
        self._client: MlflowClient | None = None
        self._run = ""
        self._waiting: list[Metric] = []

    def on_begin(self, trainer: AnyTrainer) -> None:
        from mlflow.tracking import MlflowClient

        home = _home(trainer, "")
        try:
            self._client = MlflowClient(tracking_uri=self._uri)
            self._run = self._earlier_run(home, trainer) or self._new_run(self._client, home, trainer)
            logged = {name: self._last_step(name) for name in ("training/loss", "held-out/train_loss")}
        except _mlflow_errors() as error:
            raise ResourceError(
                f"MLflow cannot log to {self._uri}: {error}. Correct MLFLOW_TRACKING_URI, or leave mlflow out"
            ) from None
        if home is not None:
            write_json(home / MLFLOW_RUN, {"uri": self._uri, "run": self._run})
        for record in _so_far(home):  # what was kept in memory when a run was stopped
            if record["step"] > logged["held-out/train_loss" if record.get("event") == "epoch" else "training/loss"]:
                self._log(record)

    def on_step(self, trainer: AnyTrainer, record: Record) -> None:
        self._log(record)

    def on_epoch(self, trainer: AnyTrainer, record: Record) -> None:
        self._log(record)
        self._send()

    def on_end(self, trainer: AnyTrainer) -> None:
        self._send()
        self._try(lambda client: client.set_terminated(self._run))

    def _earlier_run(self, home: Path | None, trainer: AnyTrainer) -> str:
        """The run of MLflow that a resumed training began."""
        if home is None or not trainer.at.step or not (home / MLFLOW_RUN).is_file():
            return ""
        known = read_json(home / MLFLOW_RUN, dict[str, str])
        return known.get("run", "") if known.get("uri") == self._uri else ""

    def _new_run(self, client: MlflowClient, home: Path | None, trainer: AnyTrainer) -> str:
        from mlflow.entities import Param

        found = client.get_experiment_by_name(self._experiment)
        experiment = client.create_experiment(self._experiment) if found is None else found.experiment_id
        name = self._run_name or trainer.options.label
        if home is not None and self._run_name is None:  # of a seed, a folder in that of the run
            name = f"{home.parent.name}, {home.name}" if _PART.fullmatch(home.name) else home.name
        tags = {} if home is None else {"bertkit.run": printable(home)}
        made = str(client.create_run(experiment, run_name=name, tags=tags).info.run_id)
        settings = trainer.identity.get("config")
        values = {**trainer.identity, **(settings if isinstance(settings, dict) else {})}
        plain = {key: value for key, value in values.items() if isinstance(value, str | int | float)}
        given = {key: str(value)[:_MOST_PARAM_BYTES] for key, value in plain.items()}
        client.log_batch(made, params=[Param(key, value) for key, value in given.items()])
        return made

    def _last_step(self, name: str) -> int:
        assert self._client is not None, "a run begins"
        return max((each.step for each in self._client.get_metric_history(self._run, name)), default=0)

    def _log(self, record: Record) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._waiting += [Metric(name, value, now, record["step"]) for name, value in scalars(record).items()]
        if len(self._waiting) > _MOST_METRICS // 2:
            self._send()

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []

        def send(client: MlflowClient) -> None:
            for start in range(0, len(waiting), _MOST_METRICS):
                client.log_batch(self._run, metrics=waiting[start : start + _MOST_METRICS])

        self._try(send)

    def _try(self, send: Callable[[MlflowClient], object]) -> None:
        try:
            if self._client is not None:
                send(self._client)
        except _mlflow_errors() as error:
            say(f"MLflow cannot log to {self._uri}: {error}; continuing without it")
            self._client = None


def _mlflow_errors() -> tuple[type[Exception], ...]:
    from mlflow.exceptions import MlflowException

    return MlflowException, OSError


def _home(trainer: AnyTrainer, needed: str) -> Path | None:
    """The folder of a seed; ConfigError for a run that has none where ``needed`` names what to give instead."""
    folder = trainer.options.folder
    if folder is None and needed:
        raise ConfigError(f"this training has no folder; give one: {needed}")
    return None if folder is None else folder.parent


def _so_far(home: Path | None) -> Iterable[Record]:
    return read_log(home / LOG) if home is not None and (home / LOG).is_file() else ()
