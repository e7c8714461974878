"""Several processes behind one address: models are loaded once, and the workers, forked afterwards, share the weights.

The supervisor computes nothing and answers nobody. While it loads the models for the first time, a process that was
forked before answers in the place of the workers: 503, to come again. It starts a worker anew if it dies, ends all of
them on SIGTERM, and on SIGHUP loads the models again: the old workers answer until those with the new models have been
forked.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from bertkit.errors import CheckpointError
from bertkit.server import log
from bertkit.server.app import ServerApp
from bertkit.server.operations.board import Board
from bertkit.server.running import run, uvicorn_server

#: Seconds in which a worker may not die twice, or the supervisor waits before it starts another.
_PAUSE = 1.0


class _Stopped(BaseException):
    """Raised by a signal while models are being loaded. As a BaseException it passes every handler of errors."""


class Supervisor:
    """See the module.

    app: an application whose models are not loaded yet.
    make: another one, for a reload.
    listening: a socket for each worker, or one for all.
    """

    def __init__(self, app: ServerApp, make: Callable[[], ServerApp], listening: Sequence[socket.socket]) -> None:
        self._app, self._make, self._listening = app, make, listening
        self._workers: dict[int, float] = {}
        #: The number of each worker. Another one with the same number takes over its socket, with who waits there.
        self._numbers: dict[int, int] = {}
        #: Workers that were told to end.
        self._leaving: dict[int, float] = {}
        self._stopping = self._reloading = self._loading = False
        #: For those that answer, those of an earlier load, and some that are late.
        self._board = Board(4 * app.settings.workers)

    def _load(self, app: ServerApp) -> bool:
        """Load the models of an application; False: the supervisor was told to stop meanwhile.

        Raises:
            CheckpointError: one does not answer.
        """
        try:
            self._loading = True
            if self._stopping:
                return False
            complete = app.service.models.load_all()
            self._loading = False
        except _Stopped:
            return False
        finally:
            self._loading = False
        if not complete:
            failed = [facts for facts in app.service.models.facts() if facts.state == "failed"]
            raise CheckpointError("; ".join(f"{facts.name}: {facts.error}" for facts in failed))
        return True

    def run(self, ready: Callable[[ServerApp], None]) -> bool:
        """Until SIGTERM or SIGINT, and until all workers have ended; whether the models were loaded before.

        Raises:
            CheckpointError: a model does not answer.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._ask_reload)
        stand_in = self._start_stand_in()
        try:
            loaded = self._load(self._app)
        finally:
            _end(stand_in)  # before there are workers, so that nobody gets a 503 after they are ready
        if not loaded:
            return False
        self._start_all()
        ready(self._app)
        while self._workers or self._leaving:
            self._wait()
            if self._reloading and not self._stopping:
                self._reload()
            self._end_late()
        return True

    def _start_stand_in(self) -> int:
        """Fork a process that refuses all requests, because models are being loaded; its number."""
        parent = os.getpid()

        def watch() -> None:
            while os.getppid() == parent:
                time.sleep(_PAUSE)
            os._exit(1)  # or it would refuse them for ever

        def refuse() -> None:
            threading.Thread(target=watch, daemon=True).start()
            self._app.service.models.are_loaded_elsewhere = True
            run(self._app, self._listening)

        stand_in = os.fork()
        if not stand_in:
            _work(refuse)
        return stand_in

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        for each in self._listening:  # so that new connections are refused, and do not wait for nobody
            each.close()
        self._dismiss(list(self._workers))
        if self._loading:
            self._loading = False
            raise _Stopped

    def _ask_reload(self, number: int, frame: FrameType | None) -> None:
        self._reloading = True

    def _dismiss(self, workers: list[int]) -> None:
        end = time.monotonic() + self._app.settings.grace + _PAUSE
        for worker in workers:
            self._workers.pop(worker, None)
            self._leaving[worker] = end
            try:
                os.kill(worker, signal.SIGTERM)
            except ProcessLookupError:
                self._leaving.pop(worker)

    def _end_late(self) -> None:
        """Kill workers that do not end by themselves."""
        for worker, end in list(self._leaving.items()):
            if time.monotonic() > end:
                os.kill(worker, signal.SIGKILL)
                self._leaving[worker] = end + 3600

    def _wait(self) -> None:
        """Note what workers have ended; start others for those that should not have."""
        worker, status = os.waitpid(-1, os.WNOHANG)
        if not worker:
            time.sleep(0.05)
            return
        self._board.give_up(worker)
        if self._leaving.pop(worker, None) is not None or self._stopping:
            self._workers.pop(worker, None)
            self._numbers.pop(worker, None)
            return
        begun, number = self._workers.pop(worker, 0.0), self._numbers.pop(worker)
        self._say("warning", f"worker {worker} ended ({_ending(status)}); another one is started")
        if time.monotonic() - begun < _PAUSE:
            time.sleep(_PAUSE)
        if not self._stopping:
            self._start(number)

    def _reload(self) -> None:
        self._reloading = False
        app = self._make()
        try:
            if not self._load(app):
                return
        except CheckpointError as error:
            self._say("error", f"not reloaded: {error}")
            return
        if self._stopping:
            return
        self._app = app
        old = list(self._workers)
        self._start_all()
        self._dismiss(old)
        self._say("info", "reloaded")

    def _say(self, level: log.Level, message: str) -> None:
        log.write(self._app.settings, level, message)

    def _start_all(self) -> None:
        uvicorn_server(self._app)  # so that its modules are shared, too
        gc.collect()
        gc.freeze()  # or the collector would write on, and so copy, pages that workers share
        for number in range(self._app.settings.workers):
            self._start(number)

    def _start(self, number: int) -> None:
        sys.stderr.flush()
        sys.stdout.flush()
        place = self._board.free_place()
        worker = os.fork()
        if worker:
            self._workers[worker], self._numbers[worker] = time.monotonic(), number
            self._board.take(worker, place)
            if self._stopping:  # told after the fork, when this worker was not known yet
                self._dismiss([worker])
            return

        def answer() -> None:
            if place is not None:
                self._app.metrics.share(self._board, place)
            own = self._listening[number % len(self._listening)]
            for listening in self._listening:  # or connections would wait at those of workers that have ended
                if listening is not own:
                    listening.close()
            run(self._app, [own])

        _work(answer)


def _work(answer: Callable[[], None]) -> NoReturn:
    """What a process that was just forked does, until it ends."""
    code = 1
    try:
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        answer()
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def _end(process: int) -> None:
    """End a child that has nothing to finish; within :data:`_PAUSE`."""
    end = time.monotonic() + _PAUSE
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(process, signal.SIGTERM)
        while not os.waitpid(process, os.WNOHANG)[0]:
            if time.monotonic() > end:
                os.kill(process, signal.SIGKILL)
            time.sleep(0.01)


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"status {os.WEXITSTATUS(status)}"
