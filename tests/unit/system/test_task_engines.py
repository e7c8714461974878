"""Tasks in processes: results in order, errors as they were raised, and a new process for one that died."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from bertkit.errors import DataError, ResourceError
from bertkit.system.task_engines import task_engine


def square(number: int) -> int:
    if number < 0:
        raise DataError("file.csv:3: bad")
    return number**2


def die_once(marks: Path, number: int) -> int:
    mark = marks / str(number)
    if number and not mark.exists():
        mark.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(number: int) -> int:
    os._exit(7)


def test_processes_that_die_are_started_again_and_errors_arrive(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with task_engine("local", 2) as tasks:
        ended: list[int] = []
        assert tasks.run(partial(die_once, tmp_path), [0, 1, 2], label="x", done=ended.append) == [0, 1, 2]
        assert sorted(ended) == [0, 1, 2]
        with pytest.raises(DataError, match=r"file\.csv:3: bad"):
            tasks.run(square, [3, -1], label="x")
        with pytest.raises(ResourceError, match=r"a process died 4 times \(exit code 7\).*use fewer workers"):
            tasks.run(die, [0], label="x")
    assert capfd.readouterr().err.count("a process died") == 2 + 3
