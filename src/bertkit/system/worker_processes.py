"""Share work out to other processes, which end when the process that started them does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import TypeVar

from bertkit.errors import ResourceError

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")


def map_in_processes(
    function: Callable[[TaskT], ResultT],
    tasks: Iterable[TaskT],
    *,
    workers: int,
    begin: Callable[[], object],
    size_of: Callable[[TaskT], int],
    room: int,
) -> Iterator[ResultT]:
    """The results of ``function`` in the order of the tasks, computed by ``workers`` processes.

    Processes are spawned, not forked: the libraries in use have threads, which do not survive a fork. So a script must
    guard its main part by ``if __name__ == "__main__":``. Ctrl-C is left to the calling process. Tasks are read lazily;
    one for each worker and one more are under way, of ``room`` together unless a single one is larger.
    """
    if os.name == "nt":
        workers = min(workers, 61)  # Windows waits for at most 63 handles, of which the pool needs two
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(begin,))
    pending: deque[tuple[int, Future[ResultT]]] = deque()
    waiting = 0
    try:
        for task in tasks:
            size = size_of(task)
            while pending and (len(pending) > workers or waiting + size > room):
                done, future = pending.popleft()
                waiting -= done
                yield future.result()
            pending.append((size, pool.submit(function, task)))
            waiting += size
        while pending:
            yield pending.popleft()[1].result()
    except BrokenProcessPool as error:
        raise ResourceError(
            "a worker process died, most often because memory ran out: use fewer workers. (In your own script, "
            "make this call under: if __name__ == '__main__':)"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(begin: Callable[[], object]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=leave_with_parent, daemon=True).start()
    begin()


def leave_with_parent() -> None:
    """End this worker when its parent is killed: nothing else would notify it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
