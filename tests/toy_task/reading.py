"""Reading: ``train.tone`` with a number and a text per line."""

from __future__ import annotations

from pathlib import Path

from bertkit.tasks.examples import Examples, Split
from bertkit.tasks.reading.bad_rows import BadRows, OnError
from bertkit.tasks.reading.lines import Lines
from bertkit.tasks.reading.splits import FileRules
from toy_task.task import ToneExample, ToneTask

RULES = FileRules((".tone",))


def read_tones(task: ToneTask, path: Path, split: Split, on_error: OnError = "raise") -> Examples[ToneExample]:
    bad = BadRows(on_error, gather=True)
    rows = []
    for number, line in enumerate(Lines(path, bad), start=1):
        tone, found, text = line.rstrip("\n").rpartition(task.separator)
        try:
            rows.append(ToneExample(text, float(tone) if found else None, number, str(path)))
        except ValueError:
            bad.report(path, number, "no number", f"{tone!r} is not a number")
    bad.finish(path, len(rows), f"{path} is empty")
    return Examples(rows, path, split, bad.skipped)
