"""Run commands in an interpreter that lacks the packages which ``bertkit-lite`` does without.

``python lite_command.py COMMAND ...``; the exit code is the command's. At the end the modules of those packages that
were imported all the same, there should be none, are an error. Without a command it is asked for many: each line of
standard input is the arguments of one, as JSON, and is answered by a line with exit code, output and errors. With
``--windows`` in front it also lacks what Python on Windows lacks (``windows_like.py``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.machinery import ModuleSpec, PathFinder
from io import BytesIO, TextIOWrapper
from types import ModuleType

#: What ``bertkit`` requires and ``bertkit-lite`` does not, by the names of the imports; pandas comes with others.
ABSENT = set(
    "torch pyarrow scipy sklearn threadpoolctl nupunkt mwparserfromhell charset_normalizer "
    "onnx onnxscript pandas".split()
)


class LiteFinder(PathFinder):
    """Finds no package of :data:`ABSENT`, as if it were not installed."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if fullname.partition(".")[0] in ABSENT else super().find_spec(fullname, path, target)


def run(argv: list[str]) -> int:
    from bertkit.cli import main as command

    code = command(argv)
    found = sorted(ABSENT & {name.partition(".")[0] for name in sys.modules})
    if found:
        sys.stderr.write(f"imported: {', '.join(found)}\n")
        return 99
    return code


def serve() -> None:
    from bertkit.system.console import set_quiet

    for line in sys.stdin:
        set_quiet(False)
        out, err = (TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with redirect_stdout(out), redirect_stderr(err):
            code = run(json.loads(line))
        said = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
        print(json.dumps([code, *said]), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--windows"]:
        import windows_like

        del sys.argv[1]
        ABSENT |= windows_like.MODULES
        windows_like.take_away()
    sys.meta_path[:] = [LiteFinder if finder is PathFinder else finder for finder in sys.meta_path]
    sys.exit(run(sys.argv[1:]) if len(sys.argv) > 1 else serve())
