"""What a run leaves behind. After fine-tuning::

    RUN/
        model.safetensors  config.json  vocab.txt ...   the best seed's best model: load RUN like any checkpoint
        README.md                    model card
        finetune.json                settings, task, data and start checkpoint of the run
        metrics.json                 scores with the protocol they were made under; written last
        log.jsonl                    one line a step and an epoch, of the best seed
        predictions-dev.jsonl        text, gold, predicted, probabilities
        errors-dev.jsonl             the worst of them, worst first
        evaluation-*                 of later evaluations: scores with their protocol, predictions, the worst of them
        decision.json                what was chosen on dev, such as a threshold, where the kind of task has that
        search.json                  what a search tried, and what came out
        loss.png  confusion.png
        seed-0/  seed-1/ ...         each seed's metrics.json, log.jsonl, predictions, best/ and last/ (models)
            checkpoints/             training state while the seed is not finished
        trial-000/ ...               the same of a search, until it is finished

After pre-training::

    RUN/
        model/                       the model and its tokenizer: load RUN/model like any checkpoint
        pretrain.json                settings, data and start of the run
        metrics.json                 settings and scores; written last
        log.jsonl                    one line a step and an evaluation
        checkpoints/                 training state while the run is not finished
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TextIO

from bertkit.errors import CheckpointError, ConfigError, ResourceError
from bertkit.system.atomic_files import try_lock, write_atomically
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer.snapshot import remove_remains

#: Increased when a reader of an older version could misread a run folder.
FORMAT_VERSION = 1
SETTINGS, METRICS, LOG = "finetune.json", "metrics.json", "log.jsonl"
SEARCH, BOOTSTRAP = "search.json", "bootstrap.json"
#: Name of the setting that tells which examples a run was trained and scored on: a hash of each part.
EXAMPLES, ALL = "examples", "hash of all"
PRETRAIN_SETTINGS, MODEL, CHECKPOINTS = "pretrain.json", "model", "checkpoints"


class RunFolder:
    """A run folder, and the only writer of it while :meth:`claimed`: what :class:`FinetuneFolder` and
    :class:`PretrainFolder` share.

    The order of a run is: claim, check, prepare (which may refuse the data and the settings), begin, train, write
    ``metrics.json``. Of several ranks the first alone does this.

    Args:
        path: the folder; need not exist.
    """

    #: The file of the settings; a folder that has it holds a run.
    settings_file: ClassVar[str]
    #: Where the training states lie, as a glob pattern.
    states: ClassVar[str]
    #: How a run is told to go on.
    how_to_resume: ClassVar[str]

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()

    @property
    def is_finished(self) -> bool:
        """Whether the run came to its end: its last file is there."""
        return (self.path / METRICS).exists()

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the folder, so that no second process trains into it; the hold ends with the process.

        What a killed process left of an unfinished write is removed. A folder that is still empty at the end, because
        the data or the settings were refused, is removed again.

        Raises:
            ConfigError: another process holds it; it is a file.
            ResourceError: the folder cannot be written.
        """
        name = self.path / ".lock"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = name.open("w")
        except (FileExistsError, NotADirectoryError):
            raise ConfigError(f"--out {self.path} is a file, or lies in one; name a folder") from None
        except OSError as error:
            raise ResourceError(f"cannot write the run folder {self.path}: {error.strerror or error}") from error
        with lock:
            if not try_lock(lock) or not name.exists() or name.stat().st_ino != os.fstat(lock.fileno()).st_ino:
                raise ConfigError(f"another process is training into {self.path}; wait for it or choose another --out")
            try:
                for folder in self.path.glob(self.states):
                    remove_remains(folder)
                for unfinished in self.path.glob(".*.tmp"):
                    unfinished.unlink(missing_ok=True)
                yield
            finally:
                name.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # it holds a run
                    self.path.rmdir()

    def check(self, settings: Mapping[str, Any], *, resume: bool, free: Collection[str] = ()) -> None:
        """See that a run with these settings may be written here.

        Settings without anything that was trained with them, of a run that stopped before its first step, bind nobody.

        Args:
            settings: what :meth:`begin` will be given; data that JSON can hold.
            resume: whether a run that is here already may go on.
            free: settings that a resumed run may change, by name, at the top or one level below.

        Raises:
            ConfigError: the folder holds a run and ``resume`` is False; it holds something else.
            CheckpointError: the run in it has other settings.
        """
        path = self.path / self.settings_file
        if path.exists():
            if not self._has_steps():
                return
            if not resume:
                raise ConfigError(f"{self.path} already holds a run: {self.how_to_resume}, or choose another --out")
            ours = _plain(settings)
            _must_agree(path, self._completed(read_json(path), ours), ours, {*free, "versions"})
            return
        others = sorted(entry.name for entry in self.path.iterdir() if entry.name != ".lock")
        if others:
            raise ConfigError(
                f"{self.path} is not empty and holds no run ({', '.join(others[:5])}): choose a new folder for --out"
            )

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Write the settings; from now on the folder holds a run."""
        write_json(self.path / self.settings_file, _plain(settings))

    def _completed(self, theirs: dict[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that an older version wrote, with what it did not know and did as the defaults of ``ours`` say."""
        return theirs

    def _has_steps(self) -> bool:
        """Whether a step of the run was taken: there is a state, a log, or a result."""
        log = Path(self.states).parent / LOG
        return self.is_finished or any(any(self.path.glob(name)) for name in (f"{self.states}/step-*", str(log)))


class FinetuneFolder(RunFolder):
    """The folder of a fine-tuning run, which has one folder a seed."""

    settings_file, states, how_to_resume = SETTINGS, f"*-*/{CHECKPOINTS}", "add --resume to go on"

    def _completed(self, theirs: dict[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
        defaults = FinetuneConfig().model_dump()
        config = {name: defaults[name] for name in ours["config"] if name in defaults}
        task = {name: value for name, value in ours.get("task", {}).items() if not value}
        completed = dict(theirs)
        for key, new in (("config", config), ("task", task)):
            if new:
                completed[key] = {**new, **theirs.get(key, {})}
        if EXAMPLES in ours and EXAMPLES not in theirs:  # of a finished run the protocol has a hash of all
            known = read_json(self.path / METRICS)["protocol"]["data"] if self.is_finished else {}
            completed[EXAMPLES] = {**ours[EXAMPLES], ALL: known.get("data_sha256", ours[EXAMPLES][ALL])}
        if "given" in ours and "given" not in theirs:  # what differed from its default was given
            told = completed["config"]
            completed["given"] = [name for name in ("batch_size", "warmup") if told[name] != defaults[name]]
        return completed

    def _has_steps(self) -> bool:
        return super()._has_steps() or (self.path / SEARCH).exists()

    @property
    def fewest_seeds(self) -> int:
        """How many seeds a resumed run must have at least, so that no finished one is lost; 0 where there is no run."""
        path = self.path / self.settings_file
        if not path.exists():
            return 0
        asked = int(read_json(path).get("config", {}).get("seeds", 0))
        if self.is_finished:
            return min(asked, len(read_json(self.path / METRICS)["seeds"]))
        return min(asked, sum(1 for _ in self.path.glob(f"seed-*/{METRICS}")))

    def is_finished_with(self, seeds: int) -> bool:
        """Whether there is a result of so many seeds."""
        return self.is_finished and len(read_json(self.path / METRICS)["seeds"]) == seeds

    def seed(self, seed: int) -> Path:
        """Folder of one seed."""
        return self.path / f"seed-{seed}"

    def checkpoints(self, seed: int) -> Path:
        """Folder of a seed's training states."""
        return self.seed(seed) / CHECKPOINTS

    def drop_checkpoints(self, seed: int) -> None:
        """Delete the training states of a finished seed; its models stay."""
        shutil.rmtree(self.checkpoints(seed), ignore_errors=True)

    def publish(self, seed: int) -> None:
        """Make one seed's model, log and predictions those of the run; a result of fewer seeds no longer holds."""
        if self.is_finished and read_json(self.path / METRICS)["chosen_seed"] != seed:
            for path in self.path.glob("evaluation-*"):  # of a model that is no longer here
                path.unlink()
        (self.path / METRICS).unlink(missing_ok=True)
        own = [path for path in self.seed(seed).iterdir() if path.is_file() and path.name not in (METRICS, BOOTSTRAP)]
        for source in [*(self.seed(seed) / "best").iterdir(), *own]:
            _link(source, self.path / source.name)


class PretrainFolder(RunFolder):
    """The folder of a pre-training run. Such a run goes on by itself unless it is told not to."""

    settings_file, states, how_to_resume = PRETRAIN_SETTINGS, CHECKPOINTS, "leave out --no-resume to go on"

    @property
    def model(self) -> Path:
        """Where the model and its tokenizer are saved."""
        return self.path / MODEL

    @property
    def checkpoints(self) -> Path:
        """Folder of the training states."""
        return self.path / CHECKPOINTS

    def drop_checkpoints(self) -> None:
        """Delete the training states of the finished run; its model stays."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)


def read_json(path: Path) -> Any:
    """A JSON file of a run folder.

    Raises:
        CheckpointError: missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist: {path.parent} is not a finished run folder") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None


def write_json(path: Path, values: Any) -> None:
    """Write a JSON file at once; NaN and infinity are refused, because they are not JSON."""
    write_atomically(path, json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


class RunLog:
    """``log.jsonl``: one JSON object a line, flushed line by line.

    Args:
        path: the file; appended to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def __call__(self, record: Mapping[str, Any]) -> None:
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("a", encoding="utf-8", buffering=1)
            self._file.write(json.dumps(record, allow_nan=False) + "\n")
        except OSError as error:
            raise ResourceError(
                f"cannot write {self.path}: {error.strerror or error}. Make room and start the run again (finetune: "
                "with --resume): it goes on from its last saved state"
            ) from error

    def drop_after(self, step: int, evaluated_step: int) -> None:
        """Forget what will be made again, and a last line that was cut off.

        Args:
            step: the last step that is kept.
            evaluated_step: the last step whose evaluation is kept; the state after a step is saved before it is
                evaluated.
        """
        self.close()
        if not self.path.exists():
            return
        kept = [
            json.dumps(line)
            for line in iterate_log(self.path)
            if line["step"] <= (evaluated_step if "event" in line else step)
        ]
        write_atomically(self.path, "".join(f"{line}\n" for line in kept))

    def close(self) -> None:
        """Close the file; the next record opens it again."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # of a line whose failure was told when it was written
                self._file.close()
            self._file = None


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a ``log.jsonl``; a last line without its end, from a killed process, is left out."""
    return list(iterate_log(path))


def iterate_log(path: Path) -> Iterator[dict[str, Any]]:
    """The same one by one, for a log that may be long."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)


def _plain(settings: Mapping[str, Any]) -> Any:
    """As it will be read back: lists for tuples."""
    return json.loads(json.dumps({"format_version": FORMAT_VERSION, **settings}))


def _must_agree(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any], free: Collection[str]) -> None:
    told = []
    for key in sorted((theirs.keys() | ours.keys()) - set(free)):
        was, now = theirs.get(key), ours.get(key)
        if isinstance(was, dict) and isinstance(now, dict):
            fields = sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
            told += [f"{name} was {was.get(name)!r}, now {now.get(name)!r}" for name in fields if name not in free]
        elif was != now:
            told.append(f"{key} was {was!r}, now {now!r}")
    if told:
        raise CheckpointError(
            f"{path}: the run was begun with other settings ({'; '.join(told[:5])}). "
            f"Resume with the same ones, or begin a new run in another folder"
        )


def _link(source: Path, target: Path) -> None:
    """Give a file a second name without a second copy; copy where the file system has no links."""
    if target.exists() and source.samefile(target):
        return  # and a rename onto itself would leave the temporary name
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        shutil.copy2(source, temporary)
    temporary.replace(target)
