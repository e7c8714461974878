"""How files of one's own hold a kind's data: plain classes, of whose fields the command line makes its options.

A kind that has such options has its class in ``tasks/KIND/columns.py``. It makes the task, too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from bertkit.config.file_columns import EncodedOptions, FileOptions, Option, TextTable
from bertkit.errors import ConfigError
from bertkit.habit_table import remedy
from bertkit.system.typed_values import WrongValueError, typed
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.registry import KINDS, Task, form_of, get_task, part_of


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished model, and the task of its run if known; ``learned``: from the files whose task is made."""

    path: Path
    task: Task | None
    learned: bool


def columns_for(model: Finished) -> Any:
    """The columns of the task of a run, for files that it is scored on.

    By the encoding of another file UTF-8 would be misread, and its sheet may not be there.
    """
    columns = cast(Any, model.task).columns
    other = () if model.learned else (name for name in ("encoding", "sheet") if hasattr(columns, name))
    return replace(columns, **dict.fromkeys(other))


@dataclass(frozen=True)
class OwnFiles(FileOptions):
    """Files of a kind of task, and how tasks are made of them; by default they are read without being told how."""

    def task(self, name: str, data: Path, on_error: OnError = "raise") -> Task:
        """The task of that name for these files; ConfigError for options that contradict each other."""
        return get_task(name)

    def task_for(self, name: str, data: Path, on_error: OnError, model: Finished) -> Task:
        """The task of that name for files that a finished model is scored on: by default that of its run."""
        return model.task if model.task is not None and model.task.name == name else self.task(name, data, on_error)


@dataclass(frozen=True)
class EncodedFiles(EncodedOptions, OwnFiles):
    """Tasks whose columns say how files are encoded."""

    def task(self, name: str, data: Path, on_error: OnError = "raise") -> Task:
        return self._encoded(self.with_columns(get_task(name)))

    def with_columns(self, task: Any) -> Any:
        """A task of the kind, built-in or of a run, with the options that are given."""
        return task

    def task_for(self, name: str, data: Path, on_error: OnError, model: Finished) -> Task:
        """The task of the run, with the options that are given."""
        if model.task is None or model.task.name != name:
            return self.task(name, data, on_error)
        task = cast(Any, model.task)
        return self._encoded(self.with_columns(replace(task, columns=columns_for(model))))

    def _encoded(self, task: Any) -> Task:
        columns = task.columns if self.encoding is None else replace(task.columns, encoding=self.encoding)
        return cast(Task, replace(task, columns=columns))


@dataclass(frozen=True)
class LabelledTable(TextTable, EncodedFiles):
    """Tables of texts and labels."""

    label: Annotated[
        str | None,
        Option("Column; default: inferred from the file and reported. Several (a,b,c) hold 1 or 0 for one label each."),
    ] = None


def files_of(form: str) -> type[OwnFiles]:
    """The options of a kind."""
    return cast("type[OwnFiles]", part_of(form, "columns") or OwnFiles)


def task_of(
    name: str, data: str | Path, *, on_error: OnError = "raise", settings: Collection[str] = (), **options: object
) -> Task:
    """The task of that name; one that is made from files, such as ``csv`` or ``ner``, is made from ``data``.

    ``options`` are those that the command line has for the task's files, such as ``text="body"``; ``settings`` are
    other names that could have been meant.

    Raises:
        ConfigError: an unknown name or option, with the nearest known one.
        DataError: files from which no task can be made, as :func:`csv_task` and :func:`ner_task`.
    """
    kind = files_of(form_of(name))
    taken = kind.taken_by(name)
    for option in options.keys() - taken:
        takes = f"it takes {', '.join(taken)}" if taken else "its files are read without any"
        meant = remedy("settings", option, [*taken, *settings])
        raise ConfigError(f"task {name} has no option or setting {option!r}{meant}; to read data {takes}")
    hints = get_type_hints(kind)
    try:
        files = typed({name: _typed(value, hints[name]) for name, value in options.items()}, kind)
    except WrongValueError as error:
        raise ConfigError(str(error)) from None
    return files.task(name, data if isinstance(data, Path) else Path(data), on_error)


def _typed(value: object, kind: object) -> object:
    """A value as on the command line: names of columns are text, several of them separated by commas."""
    if get_origin(kind) is tuple:  # of an option that may be repeated
        return [value] if isinstance(value, str) else value
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value) if type(value) is int and int not in (kind, *get_args(kind)) else value


def who_takes(option: str) -> str:
    """A task that takes an option, one that is made from files if there is such a task."""
    made = [(name, form) for form, kind in KINDS.items() for name in kind.from_files]
    known = [(name, form) for form, kind in KINDS.items() for name in kind.built_in]
    return next(name for name, form in (*made, *known) if option in files_of(form).taken_by(name))
