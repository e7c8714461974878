"""Texts without labels, in files beside those that have some."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from pathlib import Path

from bertkit.tasks.examples import Example
from bertkit.tasks.reading.text_rows import read_texts
from bertkit.tasks.text.task import TextTask


def fresh_texts(
    task: TextTask, file: Path, known: Collection[Hashable], key: Callable[[Example], Hashable]
) -> tuple[list[Example], int]:
    """The different texts or pairs of a file, without labels, whose ``key`` is not known, and how many were read."""
    read = [Example(row.text, row.pair, source=str(file)) for row in read_texts(file, task.columns)[1]]
    read = [example for example in read if example.text.strip()]
    found: dict[Hashable, Example] = {}
    for example in read:
        if key(example) not in known:
            found.setdefault(key(example), example)
    return list(found.values()), len(read)
