"""The folder of a run and its log: claimed by one process, written in a fixed order, resumed with the same settings."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TextIO

from bertkit.config.number_formats import Precision
from bertkit.errors import CheckpointError, ConfigError, ResourceError
from bertkit.inference.run_files import METRICS
from bertkit.system.atomic_files import LOCK, claimed_folder, is_full_disk, write_atomically
from bertkit.system.json_files import as_stored, parsed, read_json, read_lines, write_json
from bertkit.system.paths import user_path
from bertkit.system.untrusted_files import Json
from bertkit.training.trainer.loop_options import Record
from bertkit.training.trainer.snapshot import remove_remains

LOG = "log.jsonl"


class RunLog:
    """Appends to a log, one JSON object per optimizer step and per evaluation; flushed after every line."""

    def __init__(self, path: Path, how_to_resume: str) -> None:
        self.path, self.how_to_resume = path, how_to_resume
        self._file: TextIO | None = None

    def __call__(self, record: Record) -> None:
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("a", encoding="utf-8", buffering=1)
            self._file.write(json.dumps(record, allow_nan=False) + "\n")
        except OSError as error:
            room = "Free some disk space. " if is_full_disk(error) else ""
            why = f"{error.strerror or error}. {room}{self.how_to_resume} from the last checkpoint"
            raise ResourceError(f"cannot write {self.path}: {why}") from error

    def drop_after(self, step: int, evaluated_step: int) -> None:
        """Delete what a resumed run will repeat: a checkpoint is saved before its evaluation, so the two may differ."""
        self.close()
        if self.path.exists():
            last = {True: evaluated_step, False: step}
            kept = (line for line in read_log(self.path) if line["step"] <= last["event" in line])
            write_atomically(self.path, "".join(f"{json.dumps(line)}\n" for line in kept))

    def close(self) -> None:
        """Close the file; the next record opens it again."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # the error was reported when the line was written
                self._file.close()
            self._file = None


def read_log(path: Path) -> Iterator[Record]:
    """The records of a log, one at a time; an unfinished last line, from a killed process, is left out."""
    for number, record in enumerate(read_lines(path), start=1):
        if not isinstance(record.get("step"), int):
            raise CheckpointError(f"{path}:{number} is damaged: expected a whole number as step, got {record!r:.60}")
        yield record


#: Increased when a reader of an older version could misread a run folder.
FORMAT_VERSION = 1
CHECKPOINTS = "checkpoints"


class RunFolder:
    """The base class of each kind of run's folder; only one process writes it while it is :meth:`claimed`.

    The order of a run: claim, check, prepare (which may refuse the data or the settings), begin, train, and last write
    ``metrics.json``. With several ranks only the first does this.
    """

    #: The file of the settings; a folder that has it holds a run.
    settings_file: ClassVar[str]
    #: Where the training states are, as a glob pattern.
    states: ClassVar[str]
    #: What a user must do to resume a run: a sentence without its full stop.
    how_to_resume: str

    def __init__(self, path: str | Path) -> None:
        self.path = user_path(path)

    @property
    def is_finished(self) -> bool:
        """Whether the run has written its last file."""
        return (self.path / METRICS).exists()

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Lock the folder, remove leftovers of killed writes, and at the end the folder itself if it stayed empty."""
        busy = f"another process is training into {self.path}; wait for it or choose another --out"
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(claimed_folder(self.path, busy))
            except OSError as error:
                raise ResourceError(f"cannot write the run folder {self.path}: {error.strerror or error}") from error
            for folder in self.path.glob(self.states):
                remove_remains(folder)
            for unfinished in self.path.glob(".*.tmp"):
                unfinished.unlink(missing_ok=True)
            yield

    def check(self, settings: Mapping[str, Json], *, resume: bool, free: Collection[str] = ()) -> None:
        """Make sure that a run with these settings, those of :meth:`begin`, may be written here.

        Settings of a run that stopped before its first step bind nobody; those named ``free`` may change.
        """
        path = self.path / self.settings_file
        if path.exists():
            if not self._has_steps():
                return
            if not resume:
                raise ConfigError(f"{self.path} already holds a run. {self.how_to_resume}, or choose another --out")
            ours = as_stored({"format_version": FORMAT_VERSION, **settings})
            _must_agree(path, self._completed(read_json(path, dict), ours), ours, {*free, "versions"})
            return
        if others := sorted(entry.name for entry in self.path.iterdir() if entry.name != LOCK):
            raise ConfigError(
                f"{self.path} is not empty and holds no run ({', '.join(others[:5])}): choose a new folder for --out"
            )

    def begin(self, settings: Mapping[str, Json]) -> None:
        """Write the settings; from now on the folder holds a run."""
        write_json(self.path / self.settings_file, as_stored({"format_version": FORMAT_VERSION, **settings}))

    def _completed(self, theirs: dict[str, Json], ours: Mapping[str, Json]) -> dict[str, Json]:
        """Settings written by an older version, plus those of ``ours`` that it did not have."""
        return theirs

    @property
    def precision(self) -> Precision | None:
        """The number format that the run in the folder began with; None if there is no run."""
        path = self.path / self.settings_file
        if not path.exists() or not self._has_steps():
            return None
        config: dict[str, Any] = parsed(read_json(path, dict).get("config", {}), dict, f"{path}: config")
        found: Precision = config.get("precision", "fp32")
        return found

    def _has_steps(self) -> bool:
        log = Path(self.states).parent / LOG
        return self.is_finished or any(any(self.path.glob(name)) for name in (f"{self.states}/step-*", str(log)))


def _must_agree(path: Path, theirs: Mapping[str, Json], ours: Mapping[str, Json], free: Collection[str]) -> None:
    changes = []
    for key in sorted((theirs.keys() | ours.keys()) - set(free)):
        was, now = theirs.get(key), ours.get(key)
        if isinstance(was, dict) and isinstance(now, dict):
            fields = sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
            changes += [f"{name} was {was.get(name)!r}, now {now.get(name)!r}" for name in fields if name not in free]
        elif was != now:
            changes.append(f"{key} was {was!r}, now {now!r}")
    if changes:
        raise CheckpointError(
            f"{path}: the run was started with other settings ({'; '.join(changes[:5])}). "
            f"Resume with the same ones, or start a new run in another folder"
        )
