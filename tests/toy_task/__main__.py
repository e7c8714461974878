"""The command line with the toy kind, whose line of the registry is added before anything else is imported.

Reads commands as a JSON list of lists of words, writes what each returned and printed as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

from bertkit.tasks.registry import KINDS, Kind

KINDS["tone"] = Kind("toy_task", "Tone", {"tone": "task:TONE"})

from bertkit.cli import main  # noqa: E402

sys.modules["matplotlib"] = None  # type: ignore[assignment]  # drawing takes longer than the training of such a task

found = []
for command in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(command)
    found.append({"code": code, "out": out.getvalue(), "err": err.getvalue()})
print(json.dumps(found))
