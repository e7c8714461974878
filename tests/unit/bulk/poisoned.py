"""Predicts a file in worker processes with a model at one of whose rows they end: MODEL FILE OUT ROWS."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from bertkit.bulk.cuts import Size
from bertkit.bulk.planner import How, What, compute_folder
from bertkit.inference.runs import Run

_answers = Run.answers


def answers(self: Run, examples: Any, **others: Any) -> Any:
    if any(example.text == "poison" for example in examples):
        os.kill(os.getpid(), signal.SIGSEGV)
    return _answers(self, examples, **others)


Run.answers = answers  # type: ignore[method-assign]  # a worker imports this module as well, as its main one

if __name__ == "__main__":
    model, source, out, rows = sys.argv[1:]
    compute_folder(What(model), [source], Path(out), How(workers=1, size=Size(rows=int(rows))))
