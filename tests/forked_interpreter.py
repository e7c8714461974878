"""Python in a process of its own that is forked from one which has imported torch and bertkit: no second to wait for.

For code that needs its own environment, folder, standard streams or exit code; not for tests of what is imported.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

#: Reads requests from standard input, a line each, and writes the number and then the exit code of each child.
SERVER = """
import json, os, sys, traceback
import torch
import bertkit.cli, bertkit.inference.open_pipeline, bertkit.model.convert, bertkit.model.models, bertkit.tasks
assert not {"huggingface_hub", "requests", "httpx"} & set(sys.modules), "they read the environment when imported"

for line in sys.stdin:
    code, arguments, environment, folder, streams = json.loads(line)
    if (child := os.fork()) == 0:
        status = 1
        try:
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(folder)
            for number, path in enumerate(streams):
                os.dup2(os.open(path, os.O_RDWR), number)
            sys.stdin = open(0, closefd=False)
            sys.argv = ["-c", *arguments]
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
            status = 0
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


#: The command ``bertkit``.
COMMAND = "import sys; from bertkit.cli import main; sys.exit(main(sys.argv[1:]))"


@cache
def server() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
    )
    atexit.register(process.kill)
    return process


class Forked:
    """A process that runs code; there is one at a time: the next one kills one that a failed test has left."""

    running: Forked | None = None

    def __init__(self, code: str, *arguments: str, given: str, env: dict[str, str] | None, cwd: Path | str) -> None:
        if Forked.running is not None:
            os.kill(Forked.running.pid, signal.SIGKILL)
            Forked.running.wait()
        self._process = server()
        self._streams = tempfile.TemporaryDirectory()
        files = [Path(self._streams.name, name) for name in ("given", "out", "err")]
        for file, text in zip(files, (given, "", ""), strict=True):
            file.write_text(text, encoding="utf-8")
        request = [code, arguments, dict(os.environ if env is None else env), str(Path(cwd).absolute())]
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([*request, [str(file) for file in files]]) + "\n")
        self._process.stdin.flush()
        self.pid = int(self._line())
        Forked.running = self

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def output(self) -> str:
        """What it has written until now."""
        return Path(self._streams.name, "out").read_text(encoding="utf-8")

    def is_running(self) -> bool:
        assert self._process.stdout is not None
        return not select.select([self._process.stdout], [], [], 0)[0]

    def wait(self) -> tuple[int, str, str]:
        """Exit code, output and messages."""
        status = int(self._line())
        Forked.running = None
        with self._streams as folder:
            return status, Path(folder, "out").read_text(), Path(folder, "err").read_text()


def run_forked(
    code: str, *arguments: str, given: str = "", env: dict[str, str] | None = None, cwd: Path | str = "."
) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run([sys.executable, "-c", code, *arguments], input=given, capture_output=True, text=True)``."""
    return subprocess.CompletedProcess(code, *Forked(code, *arguments, given=given, env=env, cwd=cwd).wait())
