"""Tasks of minutes or hours in processes of their own; one whose process dies is started again."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from bertkit.errors import ResourceError
from bertkit.system.console import say, set_quiet
from bertkit.system.worker_processes import leave_with_parent

#: How often a task is started again after its process died.
RESTARTS = 3


class ProcessTask:
    """One task under way: its process, and the pipe that its result comes through."""

    def __init__(self, function: Path, task: object) -> None:
        self._given, self._num_starts = (function, task), 0
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would not have the threads of the libraries in use
        self._num_starts += 1
        self._receiver, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(*self._given, sender))
        with _no_interrupt():
            self.process.start()
        sender.close()  # the other end is in the process alone, so that the pipe ends with it

    @property
    def waited_for(self) -> Connection:
        """What is ready when the process has sent its result, or has died."""
        return self._receiver

    def answer(self) -> tuple[bool, Any] | None:
        """Whether the task succeeded, and its result or its error; None after a restart, because the process died."""
        try:
            found: tuple[bool, Any] = pickle.loads(self._receiver.recv_bytes())
        except EOFError:
            self._start_again()
            return None
        self.process.join()
        return found

    def _start_again(self) -> None:
        self.process.join()
        code = self.process.exitcode
        if self._num_starts > RESTARTS:
            raise ResourceError(
                f"a process died {self._num_starts} times (exit code {code}), most often because memory ran out: use "
                "fewer workers"
            )
        say(f"a process died (exit code {code}); its work is started again")
        self._start()


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """In the block Ctrl-C waits, and a process that is started does not get it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Processes:
    """Starts tasks in processes of this machine; see :class:`bertkit.system.task_engines.Engine`.

    ``folder``: for the functions, which may hold much data. As an argument of a process, one would come through a pipe
    that nobody empties when the process dies early.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._num_functions = folder, 0

    def ship(self, function: Callable[[Any], Any]) -> Path:
        """Make the function available to all tasks; returns what to start them with."""
        self._num_functions += 1
        path = self._folder / f"function-{self._num_functions}"
        path.write_bytes(pickle.dumps(function))
        return path

    def start(self, function: Path, task: object) -> ProcessTask:
        """Begin one task."""
        return ProcessTask(function, task)

    def finished(self, running: Sequence[ProcessTask], seconds: float) -> list[tuple[ProcessTask, bool, Any]]:
        """The tasks that ended within ``seconds``, each with whether it succeeded, and its result or error."""
        ready = wait([task.waited_for for task in running], timeout=seconds)
        answers = [(task, task.answer()) for task in running if task.waited_for in ready]
        return [(task, *answer) for task, answer in answers if answer is not None]

    def stop(self, running: Sequence[ProcessTask], seconds: float) -> None:
        """Ask the tasks to save and end, as SIGTERM does, and end those that have not after ``seconds``."""
        try:
            for task in running:
                task.process.terminate()
            for task in running:
                task.process.join(seconds)
        finally:
            for task in running:
                task.process.kill()

    def on_each_machine(self, function: Callable[[], Any]) -> dict[str, Any]:
        """Empty: there are no other machines."""
        return {}


def _work(function: Path, task: object, sender: Connection) -> None:
    """The main function of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setsid"):
        os.setsid()  # a terminal's Ctrl-C reaches only the process that started this one, which then asks this to stop
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=leave_with_parent, daemon=True).start()
    set_quiet(True)
    try:
        answer = True, pickle.loads(function.read_bytes())(task)
    except KeyboardInterrupt:  # it was asked to stop, and has saved
        return
    except BaseException as error:
        error.add_note(traceback.format_exc())
        answer = False, error
    try:
        sent = pickle.dumps(answer)
    except Exception:  # an error of some library
        sent = pickle.dumps((False, RuntimeError(str(answer[1]) + "".join(getattr(answer[1], "__notes__", [])))))
    with contextlib.suppress(BrokenPipeError):
        sender.send_bytes(sent)
