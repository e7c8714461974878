"""How files of one's own hold the data of any kind of task: the options of all kinds, from the registry."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import TYPE_CHECKING

from bertkit.cli.task_options import as_options
from bertkit.errors import ConfigError
from bertkit.habit_table import instead_of
from bertkit.tasks.own_files import OwnFiles, files_of, who_takes
from bertkit.tasks.registry import KINDS, form_of


class _AnyColumns:
    """How files of one's own hold the data of any kind of task."""

    def refuse_others(self, name: str, taken: Collection[str] = ()) -> None:
        """ConfigError for options that were given and are not among those that the task of that name takes."""
        others: dict[str, list[str]] = {}
        for option in fields(self):  # type: ignore[arg-type]
            if option.name in taken or getattr(self, option.name) == option.default:
                continue
            if option.name == "encoding":
                raise ConfigError(f"task {name} reads UTF-8 only; convert the files and leave --encoding out")
            typed = f"--{option.name.replace('_', '-')}"
            if instead := instead_of(f"bertkit finetune {name}", typed):
                raise ConfigError(f"task {name} does not take {typed}; write {instead}")
            others.setdefault(who_takes(option.name), []).append(typed)
        for task, options in others.items():
            them = "it" if len(options) == 1 else "them"
            raise ConfigError(
                f"task {name} does not take {', '.join(options)}, but task {task} does; leave {them} out, or use task "
                f"{task} for a file of your own"
            )

    def of(self, name: str) -> OwnFiles:
        """The options of the kind of the task of that name; ConfigError for those of other tasks."""
        kind = files_of(form_of(name))
        self.refuse_others(name, kind.taken_by(name))
        return kind(**{option.name: getattr(self, option.name) for option in fields(kind)})


if TYPE_CHECKING:
    FileColumns = _AnyColumns
else:
    FileColumns = as_options("FileColumns", _AnyColumns, map(files_of, KINDS))
