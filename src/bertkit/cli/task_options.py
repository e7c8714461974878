"""Options of the commands that read files of one's own, and of those that train."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

from cyclopts import Group, Parameter

from bertkit.config.file_columns import FileOptions, TextTable
from bertkit.system.model_sources import INCLUDED

#: Above the examples of a help page.
EXAMPLES = "For example:\n\n"
#: Options of files that ``--help`` does not show.
RARE: set[str] = set()

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


def as_options(name: str, base: type, kinds: Iterable[type[FileOptions]]) -> Any:
    """A class like ``base`` with the fields of some classes, each once, as options of a command."""
    made: dict[str, tuple[str, Any, Any]] = {}
    for kind in kinds:
        hints = get_type_hints(kind, include_extras=True)
        for part in fields(kind):
            value, option = get_args(hints[part.name])
            classes = [each for each in kind.__mro__ if issubclass(each, FileOptions)]
            group = Group(next(each.title for each in classes if part.name in each.__annotations__), sort_key=1)
            shown = False if part.default == () else None
            parameter = Parameter(help=option.help, group=group, negative=(), show_default=shown)
            if not option.everyday:
                RARE.add(f"--{part.name.replace('_', '-')}")
            new: tuple[str, Any, Any] = (part.name, Annotated[value, parameter], field(default=part.default))
            assert made.get(part.name, new)[1] == new[1], f"two kinds of tasks have an option {part.name}"
            made[part.name] = new
    here = {"__module__": __name__}
    if "encoding" in made:
        made["encoding"] = made.pop("encoding")
    return Parameter(name="*")(make_dataclass(name, made.values(), bases=(base,), frozen=True, namespace=here))


if TYPE_CHECKING:
    TextColumns = TextTable
else:
    TextColumns = as_options("TextColumns", TextTable, [TextTable])


@Parameter(name="*", group=Group(TextTable.title, sort_key=1))
@dataclass(frozen=True)
class IndexColumns(TextColumns):
    """How a table holds texts and their ids."""

    id: Annotated[str | None, Parameter(help="Column of the ids; default: 'id' if there is one, else FILE:ROW.")] = None
    show: Annotated[
        str | None,
        Parameter(
            help="Columns to keep and show beside each text that is found, such as 'answer'; separated by commas."
        ),
    ] = None

    @property
    def shown(self) -> list[str]:
        """The columns to show."""
        return list(filter(None, map(str.strip, (self.show or "").split(","))))
