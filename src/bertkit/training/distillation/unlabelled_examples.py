"""Examples without labels, which a teacher labels."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

from bertkit.errors import DataError
from bertkit.system.console import say
from bertkit.tasks.taught_workflow import TaughtWorkflow


def read_unlabelled(taught: TaughtWorkflow, files: Iterable[str | Path], known: Iterable[Any]) -> list[Any]:
    """The examples of files, of which no label is read.

    For a task of texts its text columns of tables, or each line of other files; for other kinds of tasks files as those
    that are trained on, where the answers may be missing. Left out are blank texts, those that are among the ``known``
    (train and dev), and repetitions.

    Raises:
        DataError: a file that cannot be read, or has nothing left.
        ConfigError: a file without columns for a task of pairs.
    """
    seen: set[Hashable] = set(map(taught.texts, known))
    found: list[Any] = []
    for file in map(Path, files):
        fresh, count = taught.read_unlabelled(file, seen)
        if not fresh:
            raise DataError(f"{file}: there is no text that is not in the training or the dev file already")
        say(f"{file}: {len(fresh):,} texts without labels" + (f" of {count:,}" if len(fresh) < count else ""))
        seen.update(map(taught.texts, fresh))
        found += fresh
    return found
