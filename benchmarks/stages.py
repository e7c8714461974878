"""Long benchmarks in stages: finished work is recorded in files, so that a stopped benchmark can be resumed."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Time for a command to save its state after it is told to stop.
GRACE_S = 60.0


class Stages:
    """Work that is done once; each stage has a file that records what was run and its result.

    Args:
        folder: where these files are.

    Attributes:
        seconds: of each finished stage, by name; for an interrupted stage, those since it was resumed.
        interrupted: names of the stages that did not run in one go.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.seconds: dict[str, float] = {}
        self.interrupted: set[str] = set()

    def run(self, name: str, command: list[Any], *, fresh: Path | None = None) -> str:
        """Run a bertkit command and return its standard output, or the recorded output if this command has finished.

        ``fresh``: output of an unfinished earlier start that the command cannot resume; it is deleted first.
        """
        words = list(map(str, command))

        def work() -> str:
            if fresh is not None:
                shutil.rmtree(fresh, ignore_errors=True)
            code, output = _call([sys.executable, "-m", "bertkit", *words])
            if code:
                sys.exit(f"stage {name} failed with code {code}: bertkit {shlex.join(words)}")
            return output

        return self._once(name, words, work)

    def compute(self, name: str, work: Callable[[], Any], *, depends: list[str]) -> Any:
        """Like :meth:`run`, for Python code instead of a command."""
        return self._once(name, depends, work)

    def is_done(self, name: str) -> bool:
        """Whether the stage is finished."""
        return (self.folder / f"{name}.json").exists()

    def record(self, name: str) -> dict[str, Any] | None:
        """The record of a finished stage, including earlier starts: what, seconds, interrupted, found."""
        if not self.is_done(name):
            return None
        kept: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        return kept

    def _once(self, name: str, what: list[str], work: Callable[[], Any]) -> Any:
        path, begun = self.folder / f"{name}.json", self.folder / f"{name}.begun"
        done = self.record(name)
        if done is not None:
            if done["what"] != what:
                sys.exit(f"{path} records {done['what']}, got {what}; choose another --work, or remove the file")
        else:
            print(f"stage {name}: {shlex.join(what)}", file=sys.stderr, flush=True)
            interrupted = begun.exists()
            begun.touch()
            started = time.monotonic()
            found = work()
            seconds = round(time.monotonic() - started, 1)
            done = {"what": what, "seconds": seconds, "interrupted": interrupted, "found": found}
            unfinished = path.with_suffix(".tmp")
            unfinished.write_text(json.dumps(done, indent=2) + "\n", encoding="utf-8")
            unfinished.replace(path)
            begun.unlink()
        self.seconds[name] = done["seconds"]
        if done.get("interrupted"):
            self.interrupted.add(name)
        return done["found"]


def stop_on_sigterm() -> None:
    """Turn SIGTERM into an exception, so that a running command is told to stop as well."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def _call(command: list[str]) -> tuple[int, str]:
    """Exit code and standard output. If interrupted, the command is given time to save its work."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            output, _ = child.communicate()
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):  # it gets Ctrl-C directly; a second one stops it at once
                child.terminate()
            try:
                child.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                child.kill()
            raise
        return child.returncode, output
