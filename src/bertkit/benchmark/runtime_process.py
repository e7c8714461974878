"""A runtime as a process that answers requests; see ``peers/peer.py`` for what it can be asked."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bertkit.benchmark.runtimes import Mode
from bertkit.errors import ResourceError

#: Seconds that a process has to end by itself.
PATIENCE_S = 10.0
#: What it says once its model is loaded.
READY = '{"ready": true}\n'


@dataclass(frozen=True, slots=True)
class Launch:
    """How processes are started.

    source: the model as bertkit reads it. model: the same encoder as transformers reads it.
    work: folder of converted files and logs. python: the interpreter of the peers.
    """

    source: Path
    model: Path
    work: Path
    python: str
    own_python: str
    threads: int

    def command(self, mode: Mode) -> list[str]:
        """The command line of a mode's process."""
        python, model = (self.own_python, self.source) if mode.is_ours else (self.python, self.model)
        options = {"model": model, "work": self.work, "precision": mode.precision, "threads": self.threads}
        return [python, str(mode.runtime.script), *(f"--{name}={value}" for name, value in options.items())]

    def environment(self) -> dict[str, str]:
        """The same for all: the number of threads, and none of the settings of waiting threads that bertkit makes."""
        kept = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
        return {**kept, "OMP_NUM_THREADS": str(self.threads), "TOKENIZERS_PARALLELISM": "false"}

    def log(self, mode: Mode) -> Path:
        """Where a process writes its messages."""
        return self.work / f"{mode.runtime.name}-{mode.precision}.log"


def prepare(launch: Launch, mode: Mode) -> None:
    """Write the files that a mode loads; ResourceError with its last words if it fails."""
    with launch.log(mode).open("ab") as log:
        command = [*launch.command(mode), "--prepare"]
        done = subprocess.run(
            command,
            env=launch.environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=False,
        )
    if done.returncode:
        raise ResourceError(_last_words(launch.log(mode), mode))


class RuntimeProcess:
    """A live process of one mode; use it in a ``with`` block. Raises ResourceError if it ends by itself."""

    def __init__(self, launch: Launch, mode: Mode) -> None:
        self.mode = mode
        self._log = launch.log(mode)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                launch.command(mode),
                env=launch.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the command, which ends its processes itself
            )

    def wait_until_ready(self) -> None:
        """Until its model is loaded; what a library prints before is passed over."""
        while self._line() != READY:
            pass

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        """Its answer to a request."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}, default=str) + "\n")
            self._process.stdin.flush()
        except OSError:  # it has ended; what it said last explains it
            raise ResourceError(_last_words(self._log, self.mode)) from None
        answer: dict[str, Any] = json.loads(self._line())
        return answer

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ResourceError(_last_words(self._log, self.mode))
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it: its input is closed, and it is killed if it does not care."""
        try:
            self._process.communicate(timeout=PATIENCE_S)
        except (subprocess.TimeoutExpired, OSError, KeyboardInterrupt):
            self._process.kill()
            self._process.wait()


def _last_words(log: Path, mode: Mode) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    words = lines[-1][:200] if lines else "it left no message"
    return f"the process of {mode} ended: {words.removeprefix('bertkit.errors.')}"
