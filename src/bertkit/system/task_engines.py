"""Independent tasks of minutes or hours: one after another here, in processes of this machine, or on a Ray cluster.

A task is one argument of a function that can be pickled; it keeps what it has done in files, so that one that is
started again, because its worker died, goes on from there. Ctrl-C reaches a task as a signal that it may catch, to save
first. Tasks print nothing; the calling process reports each one when it has ended.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol, TypeVar

from bertkit.errors import ConfigError
from bertkit.system.console import Progress, set_quiet
from bertkit.system.interrupts import Interrupts
from bertkit.system.ray_cluster import cause_of, connected
from bertkit.system.task_processes import RESTARTS, Processes

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")
EngineName = Literal["local", "ray"]

#: Seconds between two looks at what has ended, and whether a signal came.
LOOK_S = 0.5
#: Seconds that tasks get to save after Ctrl-C.
SAVE_S = 120.0


class Engine(Protocol):
    """Where tasks run at the same time."""

    def ship(self, function: Callable[[Any], Any]) -> Any:
        """Make the function available to all tasks; returns what to start them with."""

    def start(self, function: Any, task: object) -> Any:
        """Begin one task."""

    def finished(self, running: Sequence[Any], seconds: float) -> list[tuple[Any, bool, Any]]:
        """The tasks that ended within ``seconds``, each with whether it succeeded, and its result or error."""

    def stop(self, running: Sequence[Any], seconds: float) -> None:
        """Ask the tasks to save and end, and end those that have not after ``seconds``."""

    def on_each_machine(self, function: Callable[[], Any]) -> dict[str, Any]:
        """The result of the function on each other machine, by the machine's name."""


class Tasks(Protocol):
    """Runs tasks; results are the same whoever does."""

    #: Whether several tasks run at the same time, in other processes.
    at_once: bool

    def run(
        self,
        function: Callable[[TaskT], ResultT],
        tasks: Sequence[TaskT],
        *,
        label: str,
        done: Callable[[ResultT], object] = lambda result: None,
    ) -> list[ResultT]:
        """The result of each task, in their order; ``done`` is told each when it is there.

        Raises:
            Interrupted: a signal; tasks under way were asked to save.
            ResourceError: a worker died again and again.
            Exception: that of the first task that failed; tasks under way were asked to save.
        """

    def on_each_machine(self, function: Callable[[], ResultT]) -> dict[str, ResultT]:
        """The result of the function on each other machine, by the machine's name; empty if all tasks run here."""


class InTurn:
    """Tasks one after another in this process."""

    at_once = False

    def run(
        self,
        function: Callable[[TaskT], ResultT],
        tasks: Sequence[TaskT],
        *,
        label: str,
        done: Callable[[ResultT], object] = lambda result: None,
    ) -> list[ResultT]:
        """See :class:`Tasks`; the tasks show their own progress."""
        results = []
        for task in tasks:
            results.append(function(task))
            done(results[-1])
        return results

    def on_each_machine(self, function: Callable[[], ResultT]) -> dict[str, ResultT]:
        """Nothing."""
        return {}


class AtOnce:
    """Tasks on an engine, ``workers`` at a time; None: as many as it takes."""

    at_once = True

    def __init__(self, engine: Engine, workers: int | None) -> None:
        self._engine, self._workers = engine, workers

    def run(
        self,
        function: Callable[[TaskT], ResultT],
        tasks: Sequence[TaskT],
        *,
        label: str,
        done: Callable[[ResultT], object] = lambda result: None,
    ) -> list[ResultT]:
        """See :class:`Tasks`."""
        shipped, waiting = self._engine.ship(function), deque(enumerate(tasks))
        running: dict[Any, int] = {}
        results: dict[int, ResultT] = {}
        try:
            with Interrupts() as signals, Progress(len(tasks), label=label, unit="runs", check=signals.check) as shown:
                while waiting or running:
                    while waiting and len(running) < (self._workers or len(tasks)):
                        number, task = waiting.popleft()
                        running[self._engine.start(shipped, task)] = number
                    for one, succeeded, found in self._engine.finished(list(running), LOOK_S):
                        number = running.pop(one)
                        if not succeeded:
                            raise found
                        results[number] = found
                        done(found)
                        shown.advance()
                    shown.advance(0, note=f"{len(running)} running")
        finally:
            self._engine.stop(list(running), SAVE_S)
        return [results[number] for number in range(len(tasks))]

    def on_each_machine(self, function: Callable[[], ResultT]) -> dict[str, ResultT]:
        """See :class:`Tasks`."""
        return self._engine.on_each_machine(function)


class _Ray:
    """Starts tasks on a Ray cluster, each with so many CPUs and GPUs."""

    def __init__(self, ray: Any, cpus: int, gpus: int) -> None:
        most = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
        if most < cpus:
            raise ConfigError(
                f"a run uses {cpus} CPUs, as many threads as this process would, and no machine of the Ray cluster has "
                f"more than {most:g}: set OMP_NUM_THREADS to at most that"
            )
        if gpus and not ray.cluster_resources().get("GPU"):
            raise ConfigError("the Ray cluster has no GPU: leave the device out, or start Ray where there is one")
        self._ray, self._folder = ray, os.getcwd()
        self._remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RESTARTS)(_in_folder)

    def ship(self, function: Callable[[Any], Any]) -> Any:
        return self._ray.put(function)

    def start(self, function: Any, task: object) -> Any:
        return self._remote.remote(self._folder, function, task)

    def finished(self, running: Sequence[Any], seconds: float) -> list[tuple[Any, bool, Any]]:
        ended, _ = self._ray.wait(running, num_returns=1, timeout=seconds) if running else ([], [])
        return [(one, *self._answer(one)) for one in ended]

    def _answer(self, one: Any) -> tuple[bool, Any]:
        try:
            return True, self._ray.get(one)
        except Exception as error:
            return False, cause_of(error, "finished runs stay")

    def stop(self, running: Sequence[Any], seconds: float) -> None:
        for one in running:
            self._ray.cancel(one)  # as Ctrl-C in the worker
        if running:
            self._ray.wait(list(running), num_returns=len(running), timeout=seconds)

    def on_each_machine(self, function: Callable[[], Any]) -> dict[str, Any]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        place = {node["NodeManagerAddress"]: NodeAffinitySchedulingStrategy(node["NodeID"], False) for node in nodes}
        ask = self._ray.remote(num_cpus=0)(_in_folder)
        asked = {
            name: ask.options(scheduling_strategy=strategy).remote(self._folder, partial(_call, function), None)
            for name, strategy in place.items()
        }
        found = {}
        for name, one in asked.items():
            succeeded, found[name] = self._answer(one)
            if not succeeded:
                raise found[name]
        return found


def _in_folder(folder: str, function: Callable[[Any], Any], task: object) -> Any:
    """One task on another machine, in the folder of the calling process, so that relative names mean the same."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigError(
            f"a machine of the Ray cluster does not have the folder {folder} ({error.strerror}): start from a folder "
            "that all machines share"
        ) from None
    set_quiet(True)
    return function(task)


def _call(function: Callable[[], Any], _: object) -> Any:
    return function()


@contextmanager
def task_engine(
    engine: EngineName = "local", workers: int | None = None, *, cpus: int = 1, gpus: int = 0
) -> Iterator[Tasks]:
    """Run tasks in a ``with`` block, ``workers`` at a time (None: one here, on Ray as many as fit).

    ``cpus`` and ``gpus`` are those of one task, by which Ray chooses its place.

    Raises:
        ConfigError, MissingExtraError: see :func:`bertkit.system.ray_cluster.connected`; no machine has so many CPUs.
        Interrupted: a signal while tasks ran at once.
    """
    if engine == "ray":
        with connected() as ray:
            yield AtOnce(_Ray(ray, cpus, gpus), workers)
    elif workers is None or workers == 1:
        yield InTurn()
    else:
        with TemporaryDirectory(prefix="bertkit-tasks-") as folder:
            yield AtOnce(Processes(Path(folder)), workers)
