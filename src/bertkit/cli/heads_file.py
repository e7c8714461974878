"""The file that names the heads of ``bertkit finetune multi``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.cli.file_options import FileColumns
from bertkit.errors import ConfigError, DataError, did_you_mean
from bertkit.habit_table import option_for, remedy
from bertkit.system.settings_files import read_settings_file
from bertkit.system.typed_values import WrongValueError, typed

if TYPE_CHECKING:
    from bertkit.tasks.reading.bad_rows import OnError
    from bertkit.tasks.registry import Task as AnyTask

EXAMPLE = """
    [heads.mood]
    task = "sst2"
    data = "SST-2"

    [heads.topic]
    task = "csv"
    data = "topics.csv"
    text = "body"
    label = "topic"
"""


def read_heads(path: Path, on_error: OnError) -> tuple[dict[str, tuple[AnyTask, str]], float]:
    """The task and the data of each head, and ``alpha``; paths are relative to the file. DataError with an example."""
    try:
        values, _ = read_settings_file(path)
    except ConfigError as error:
        raise DataError(f"{error}. The file names the heads, as in:\n{EXAMPLE}") from None
    heads, alpha = values.pop("heads", None), values.pop("alpha", 0.5)
    if values or not isinstance(heads, dict) or not heads:
        others = [f"{name}{remedy('settings', name, ())}" for name in values]
        what = f"has {', '.join(others)}" if others else "has no heads"
        raise DataError(f"{path} {what}; it may have alpha, and a table for each head:\n{EXAMPLE}")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise DataError(f"{path}: alpha is {alpha!r:.40}, expected a number from 0 to 1")
    return {name: _head(path, name, facts, on_error) for name, facts in heads.items()}, float(alpha)


def _head(path: Path, name: str, facts: Any, on_error: OnError) -> tuple[AnyTask, str]:
    where = f"{path}: head {name}"
    given = dict(facts) if isinstance(facts, dict) else {}
    task, data = given.pop("task", None), given.pop("data", None)
    if not isinstance(task, str) or not isinstance(data, str):
        raise DataError(f"{where} needs a task and its data, as in:\n{EXAMPLE}")
    place = data if data.startswith("hub:") else str(path.parent / Path(data).expanduser())
    known = [option.name for option in fields(FileColumns)]  # type: ignore[arg-type]
    for option in given:
        if option not in known:
            near = option_for(f"--{option}", [f"--{name}" for name in known])
            hint = f" (did you mean {near.removeprefix('--')!r}?)" if near else did_you_mean(option, known)
            raise DataError(f"{where} has no option {option!r}{hint}; it has {', '.join(known)}")
    try:
        columns = typed(given, FileColumns)
    except WrongValueError as error:
        raise DataError(f"{where}: {error}") from None
    try:
        return columns.of(task).task(task, Path(place), on_error), place
    except ConfigError as error:
        raise DataError(f"{where}: {error}") from None
