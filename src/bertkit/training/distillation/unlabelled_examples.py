"""Examples without labels, which a teacher labels."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bertkit.errors import ConfigError, DataError
from bertkit.system.console import say
from bertkit.tasks.reading.lines import check_file
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.taught_workflow import TaughtWorkflow
from bertkit.training.finetuning.unlabelled_texts import fresh_texts


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
        fresh, count = _read(taught, file, seen)
        if not fresh:
            raise DataError(f"{file}: there is no text that is not in the training or the dev file already")
        say(f"{file}: {len(fresh):,} texts without labels" + (f" of {count:,}" if len(fresh) < count else ""))
        seen.update(map(taught.texts, fresh))
        found += fresh
    return found


def _read(taught: TaughtWorkflow, file: Path, seen: set[Hashable]) -> tuple[Sequence[Any], int]:
    """The different examples of a file that were not seen, and how many there are."""
    task = taught.task
    if not taught.has_texts:
        read = taught.read_file(file, "test")
        fresh = {taught.texts(example): example for example in reversed(read) if taught.texts(example) not in seen}
        return list(fresh.values())[::-1], len(read)
    if task.is_pair and kind_of(file) is None:
        raise ConfigError(f"{file}: lines are no pairs of texts; give a table with the columns of task {task.name}")
    check_file(file)
    return fresh_texts(task, file, seen, taught.texts)
