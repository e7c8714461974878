"""Options of the commands that read labelled data: the task, and how files of one's own hold its data."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from cyclopts import Group, Parameter

from bertkit.errors import ConfigError
from bertkit.system.model_sources import INCLUDED
from bertkit.tasks.own_files import OwnFiles, TextTable, files_of, who_takes
from bertkit.tasks.registry import KINDS, form_of

TaskName = Annotated[str, Parameter(help="One of the tasks that --help lists.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Start:
    """What a training begins with."""

    data: Annotated[Path, Parameter(help="Folder of the task's files, a training file, or hub:owner/name.")]
    model: Annotated[
        str,
        Parameter(
            alias="-m", help=f"Model to start from: folder, .safetensors file, Hub name, or {INCLUDED} (included)."
        ),
    ]


def as_options(name: str, base: type, kinds: Iterable[type[OwnFiles]]) -> Any:
    """A class like ``base`` with the fields of some classes, each once, as options of a command."""
    made = {}
    for kind in kinds:
        hints = get_type_hints(kind, include_extras=True)
        for part in fields(kind):
            value, option = get_args(hints[part.name])
            owner = next(each for each in kind.__mro__ if part.name in each.__annotations__)
            group = Group(owner.title, sort_key=1)
            parameter = Parameter(help=option.help, group=group, negative=() if value is bool else None)
            made[part.name] = (part.name, Annotated[value, parameter], field(default=part.default))
    here = {"__module__": __name__}
    if "encoding" in made:
        made["encoding"] = made.pop("encoding")
    return Parameter(name="*")(make_dataclass(name, made.values(), bases=(base,), frozen=True, namespace=here))


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
            others.setdefault(who_takes(option.name), []).append(f"--{option.name.replace('_', '-')}")
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
    TextColumns, FileColumns = TextTable, _AnyColumns
else:
    TextColumns = as_options("TextColumns", TextTable, [TextTable])
    FileColumns = as_options("FileColumns", _AnyColumns, map(files_of, KINDS))


@Parameter(name="*", group=Group(TextTable.title, sort_key=1))
@dataclass(frozen=True)
class IndexColumns(TextColumns):
    """How a table holds texts and their ids."""

    id: Annotated[str | None, Parameter(help="Column of the ids; default: 'id' if there is one, else FILE:ROW.")] = None
