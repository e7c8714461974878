"""Worker processes: results in order, and none of them outlives the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bertkit.errors import ResourceError
from bertkit.system.worker_processes import map_in_processes

VOCABULARY = """
import itertools
from bertkit.tokenization.learn.word_counts import count_words

if __name__ == "__main__":
    count_words(("some words of text " * 5000 for _ in itertools.count()), workers=2)
"""


def nothing() -> None:
    pass


def doubled_or_die(number: int) -> int:
    if number < 0:
        os._exit(3)
    return 2 * number


def results(tasks: list[int], *, room: int) -> list[int]:
    found = map_in_processes(doubled_or_die, tasks, workers=2, begin=nothing, size_of=abs, room=room)
    return list(found)


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 5, 1000])
def test_results_come_in_the_order_of_the_tasks(room: int) -> None:
    assert results(list(range(10)), room=room) == list(range(0, 20, 2))


def test_a_worker_that_dies() -> None:
    with pytest.raises(ResourceError, match=r"a worker process died, .* use fewer workers"):
        results([1, -1, 2], room=10)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_workers_that_learn_a_vocabulary_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "learn.py"
    script.write_text(VOCABULARY)
    parent = subprocess.Popen([sys.executable, script])
    workers: list[int] = []
    try:
        wait_until(lambda: len(children(parent.pid)) >= 3)  # two workers and Python's tracker of resources
        workers = children(parent.pid)
        time.sleep(0.3)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        wait_until(lambda: not any(map(is_alive, workers)), seconds=20)
    finally:
        for pid in [parent.pid, *workers]:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
