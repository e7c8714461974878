"""A runtime as a process that answers requests; see ``peers/peer.py`` for what it can be asked."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from signal import Signals
from threading import Thread
from typing import Any, Self

from bertkit.benchmark.runtimes import INT8, Mode
from bertkit.errors import ResourceError

#: Seconds after which a process counts as hanging: while it converts a model, and before its next answer.
PREPARE_S, ANSWER_S = 3600.0, 900.0
#: Seconds between looks at whether a signal has arrived.
LOOK_S = 0.2
#: What keeps ONNX Runtime and the libraries of the Hub from collecting facts of the machine.
NO_TELEMETRY = {"ORT_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
#: The signal by which a system that runs out of memory ends a process; Windows has no name for it.
KILL = 9
#: What a process says once its model is loaded.
READY = '{"ready": true}\n'


@dataclass(frozen=True, slots=True)
class Launch:
    """How processes are started.

    source: the model as bertkit reads it. model: its encoder as transformers reads it. python: the interpreter of the
    peers. check: called again and again while a process is waited for; what it raises ends the waiting.
    """

    source: Path
    int8: Path | None
    model: Path
    work: Path
    python: str
    own_python: str
    threads: int
    check: Callable[[], None]

    def command(self, mode: Mode) -> list[str]:
        """The command line of a mode's process."""
        python, model = (self.own_python, self.source) if mode.is_ours else (self.python, self.model)
        if mode == INT8 and self.int8 is not None:
            model = self.int8
        options = {"model": model, "work": self.work, "precision": mode.precision, "threads": self.threads}
        return [python, str(mode.runtime.script), *(f"--{name}={value}" for name, value in options.items())]

    def environment(self) -> dict[str, str]:
        """The same for all: threads, no telemetry, and none of the settings of waiting threads that bertkit makes."""
        kept = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
        return {**kept, "OMP_NUM_THREADS": str(self.threads), "TOKENIZERS_PARALLELISM": "false", **NO_TELEMETRY}

    def log(self, mode: Mode) -> Path:
        """Where a process writes its messages."""
        return self.work / f"{mode.runtime.name}-{mode.precision}.log"


def prepare(launch: Launch, mode: Mode) -> None:
    """Write the files that a mode loads. Raises ResourceError, with the process's last words, if that fails."""
    with RuntimeProcess(launch, mode, "--prepare") as process:
        process.wait_until_done()


class RuntimeProcess:
    """A live process of one mode; use it in a ``with`` block. Raises ResourceError if it ends by itself or hangs."""

    def __init__(self, launch: Launch, mode: Mode, *options: str) -> None:
        self.mode = mode
        self._log = launch.log(mode)
        self._check = launch.check
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*launch.command(mode), *options],
                env=launch.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the command, which ends its processes itself
            )
        self._lines: Queue[str] = Queue()
        Thread(target=self._read, daemon=True).start()

    def wait_until_ready(self) -> None:
        """Until its model is loaded; what a library prints before is ignored."""
        while self._line(ANSWER_S) != READY:
            pass

    def wait_until_done(self) -> None:
        """Until it ends, as it should."""
        while self._next_line(PREPARE_S):
            pass
        if self._process.wait():
            raise self._ended()

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        """Its answer to a request."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}, default=str) + "\n")
            self._process.stdin.flush()
        except OSError:  # it has ended; what it said last explains it
            raise self._ended() from None
        answer: dict[str, Any] = json.loads(self._line(ANSWER_S))
        return answer

    def _line(self, limit: float) -> str:
        line = self._next_line(limit)
        if not line:
            raise self._ended()
        return line

    def _next_line(self, limit: float) -> str:
        """What it writes within ``limit`` seconds; empty once it has ended."""
        deadline = time.monotonic() + limit
        while True:
            self._check()
            try:
                return self._lines.get(timeout=min(LOOK_S, limit))
            except Empty:
                if time.monotonic() > deadline:
                    self._process.kill()
                    raise ResourceError(
                        f"the process of {self.mode} was ended: it did not respond for {limit:.0f} seconds"
                    ) from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put("")

    def _ended(self) -> ResourceError:
        code = self._process.wait()
        if code < 0:  # what it said last has nothing to do with that
            reason = "; perhaps memory ran out" if -code == KILL else ""
            return ResourceError(f"the process of {self.mode} was ended by {_named(-code)}{reason}")
        text = self._log.read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        words = lines[-1][:200] if lines else "it left no message"
        return ResourceError(f"the process of {self.mode} ended: {words.removeprefix('bertkit.errors.')}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it at once; it holds nothing that has to be saved."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(OSError):  # of a request that it did not read any more
            self._process.stdin.close()


def _named(signal: int) -> str:
    """Real-time signals have numbers only."""
    return Signals(signal).name if signal in list(Signals) else f"signal {signal}"
