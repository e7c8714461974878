"""``log.jsonl`` of a run: one JSON object per optimizer step and per evaluation."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from bertkit.errors import CheckpointError, ResourceError
from bertkit.system.atomic_files import write_atomically
from bertkit.system.json_files import read_lines

LOG = "log.jsonl"


class RunLog:
    """Appends to a log and flushes after every line.

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
                f"cannot write {self.path}: {error.strerror or error}. Free some disk space and run the same command "
                "again (finetune: with --resume) to continue from the last checkpoint"
            ) from error

    def drop_after(self, step: int, evaluated_step: int) -> None:
        """Delete the records of steps and evaluations that a resumed run will repeat, and an unfinished last line.

        Args:
            step: the last step to keep.
            evaluated_step: the last step whose evaluation to keep; a checkpoint is saved before its evaluation.
        """
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

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a log, one at a time; an unfinished last line, from a killed process, is left out.

    Raises:
        CheckpointError: missing, or a line that no run writes.
    """
    for number, record in enumerate(read_lines(path), start=1):
        if not isinstance(record.get("step"), int):
            raise CheckpointError(f"{path}:{number} is damaged: expected a whole number as step, got {record!r:.60}")
        yield record
