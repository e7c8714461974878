"""Where jobs run: in this process, in processes of this machine, or as tasks of a Ray cluster."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from bertkit.bulk.compute import BlockWorker, Job
from bertkit.bulk.state import Manifest
from bertkit.errors import ConfigError, ResourceError
from bertkit.system.console import set_quiet
from bertkit.system.processor import usable_cores
from bertkit.system.ray_cluster import cause_of, connected
from bertkit.system.worker_processes import leave_with_parent

#: What became of a job: its manifest (None of a probe), an error, or :data:`DEAD`.
Outcome = Any
#: The worker ended in the middle of the job.
DEAD = "dead"
#: Seconds between two looks at what is done, in which a signal can be heeded.
LOOK_S = 0.5


class Pool(Protocol):
    """Workers that do jobs at the same time."""

    def room(self) -> int:
        """How many more jobs can be begun."""

    def begin(self, job: Job) -> None:
        """Have a worker do a job."""

    def ended(self) -> list[tuple[Job, Outcome]]:
        """The jobs that have ended since the last call; waits a little for one."""


class Here:
    """This process, one job after another."""

    def __init__(self, worker: BlockWorker, advance: Callable[[int], object]) -> None:
        self.worker, self.advance, self._jobs = worker, advance, list[Job]()

    def room(self) -> int:
        return 1 - len(self._jobs)

    def begin(self, job: Job) -> None:
        self._jobs.append(job)

    def ended(self) -> list[tuple[Job, Outcome]]:
        job = self._jobs.pop()
        return [(job, self.worker.do(job, self.advance))]


class _Process:
    """A worker process, with the job that it has."""

    def __init__(self, out: Path, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(out, threads, theirs), daemon=True)
        self.process.start()
        theirs.close()  # so that the pipe ends with the process
        self.job: Job | None = None
        self.is_ready = False


class Processes:
    """Processes of this machine; a dead one is replaced."""

    def __init__(self, out: Path, workers: int) -> None:
        self.out, self.workers = out, workers
        self.threads = max(1, usable_cores() // workers)
        self._all: list[_Process] = []

    def room(self) -> int:
        return self.workers - sum(each.job is not None for each in self._all)

    def begin(self, job: Job) -> None:
        free = next((each for each in self._all if each.job is None), None)
        if free is None:
            free = _Process(self.out, self.threads)
            self._all.append(free)
        free.job = job
        with contextlib.suppress(OSError):  # it has just died, which is found when its end is looked at
            free.connection.send(job)

    def ended(self) -> list[tuple[Job, Outcome]]:
        ready = wait([each.connection for each in self._all], timeout=LOOK_S)
        found = [self._heard(each) for each in list(self._all) if each.connection in ready]
        return [outcome for outcome in found if outcome is not None]

    def _heard(self, worker: _Process) -> tuple[Job, Outcome] | None:
        try:
            said = worker.connection.recv()
        except (EOFError, OSError):
            return self._dead(worker)
        if said == "ready":
            worker.is_ready = True
            return None
        job, worker.job = worker.job, None
        assert job is not None
        return job, said

    def _dead(self, worker: _Process) -> tuple[Job, Outcome] | None:
        self._all.remove(worker)
        worker.process.join()
        if not worker.is_ready:
            raise ResourceError(
                f"a worker process ended before it had opened the model (exit code {worker.process.exitcode}), most "
                "often because memory ran out: use fewer --workers. (In your own script, make this call under: if "
                "__name__ == '__main__':)"
            )
        return None if worker.job is None else (worker.job, DEAD)

    def close(self) -> None:
        """End all processes; what they have not committed is computed again another time."""
        for each in self._all:
            each.process.terminate()
        for each in self._all:
            each.process.join()


def _serve(out: Path, threads: int, connection: Connection) -> None:
    """What a worker process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=leave_with_parent, daemon=True).start()
    set_quiet(True)
    try:
        worker = BlockWorker(out, threads)
    except Exception as error:
        connection.send("ready")
        connection.recv()
        connection.send(error)
        return
    connection.send("ready")
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            connection.send(worker.do(job))
        except Exception as error:
            connection.send(error)


@contextmanager
def processes(out: Path, workers: int) -> Iterator[Processes]:
    """So many processes in a ``with`` block."""
    pool = Processes(out, workers)
    try:
        yield pool
    finally:
        pool.close()


class RayTasks:
    """Tasks of a Ray cluster, all of whose machines see the output and the model under the same names."""

    def __init__(self, ray: Any, out: Path, workers: int | None, threads: int | None) -> None:
        self.ray, self.out, self.threads = ray, out, threads or 1
        most = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
        if most < self.threads:  # Ray would wait for such a machine for ever
            raise ConfigError(
                f"a worker uses {self.threads} CPUs, and no machine of the Ray cluster has more than {most:g}: give "
                "at most that as --threads"
            )
        cores = int(ray.cluster_resources().get("CPU", 1))
        self.workers = workers or max(1, cores // self.threads)
        self._work = ray.remote(_work_on_ray).options(num_cpus=self.threads, max_retries=0)
        self._jobs: dict[Any, Job] = {}

    def room(self) -> int:
        return self.workers - len(self._jobs)

    def begin(self, job: Job) -> None:
        self._jobs[self._work.remote(str(self.out), self.threads, job)] = job

    def ended(self) -> list[tuple[Job, Outcome]]:
        ready, _ = self.ray.wait(list(self._jobs), num_returns=1, timeout=LOOK_S)
        return [(self._jobs.pop(each), self._outcome(each)) for each in ready]

    def _outcome(self, task: Any) -> Outcome:
        try:
            return self.ray.get(task)
        except (
            self.ray.exceptions.WorkerCrashedError,
            self.ray.exceptions.OutOfMemoryError,
            self.ray.exceptions.NodeDiedError,
        ):
            return DEAD
        except self.ray.exceptions.RayError as error:
            return cause_of(error, "finished blocks stay")


_workers: dict[tuple[str, int], BlockWorker] = {}


def _work_on_ray(out: str, threads: int, job: Job) -> Manifest | None:
    """A task: its process keeps the model for the next one."""
    key = (out, threads)
    path = Path(out)
    if not path.is_dir():
        raise ResourceError(f"{socket.gethostname()} does not see {out}: use a folder that all machines share")
    if key not in _workers:
        set_quiet(True)
        _workers.clear()
        _workers[key] = BlockWorker(path, threads)
    return _workers[key].do(job)


@contextmanager
def ray_tasks(out: Path, workers: int | None, threads: int | None) -> Iterator[RayTasks]:
    """Tasks of the cluster at ``RAY_ADDRESS``, or of a new one on this machine."""
    with connected() as ray:
        pool = RayTasks(ray, out, workers, threads)
        try:
            yield pool
        finally:
            for task in pool._jobs:
                ray.cancel(task, force=True)
