"""Run a command in an interpreter that lacks the packages which ``bertkit-lite`` does without.

``python lite_command.py COMMAND ...``; the exit code is the command's. At the end the modules of those packages that
were imported all the same, there should be none, are an error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

#: What ``bertkit`` requires and ``bertkit-lite`` does not, by the names of the imports; pandas comes with others.
ABSENT = set("torch pyarrow scipy sklearn threadpoolctl nupunkt mwparserfromhell onnx onnxscript pandas".split())


class LiteFinder(PathFinder):
    """Finds no package of :data:`ABSENT`, as if it were not installed."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if fullname.partition(".")[0] in ABSENT else super().find_spec(fullname, path, target)


def main() -> int:
    sys.meta_path[:] = [LiteFinder if finder is PathFinder else finder for finder in sys.meta_path]
    from bertkit.cli import main as command

    code = command(sys.argv[1:])
    found = sorted(ABSENT & {name.partition(".")[0] for name in sys.modules})
    if found:
        sys.stderr.write(f"imported: {', '.join(found)}\n")
        return 99
    return code


if __name__ == "__main__":
    sys.exit(main())
