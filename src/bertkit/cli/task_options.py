"""Options of the commands that read labelled data: the task, and the columns of tables and of CoNLL files."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from bertkit.errors import ConfigError

if TYPE_CHECKING:
    from bertkit.tasks import Task as AnyTask
    from bertkit.tasks import TextTask
    from bertkit.tasks.reading.bad_rows import OnError

Task = Annotated[
    str,
    Parameter(
        help="cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, or glue for all of them; squad, squad2; ner; "
        "swag, codah, arc; imdb, tweets; or csv for a file of your own."
    ),
]
FILE_GROUP = Group("Files of your own (task csv)", sort_key=1)
Column = Annotated[str | None, Parameter(help="Default: guessed from the file, and told.")]


@Parameter(name="*", group=FILE_GROUP)
@dataclass(frozen=True)
class TextColumns:
    """How a table holds its texts."""

    text: Column = None
    text_pair: Column = None
    delimiter: Annotated[
        str | None,
        Parameter(
            help="Between the fields of a line. Default: tab in .tsv; in .csv ',', ';' or tab, as in its header."
        ),
    ] = None
    encoding: Annotated[
        str | None, Parameter(help="Encoding of text files: cp1252 for many files from Excel. Default: utf-8.")
    ] = None
    quoting: Annotated[
        Literal["csv", "none"] | None,
        Parameter(help="csv: double quotes enclose fields (default of .csv); none: they are text (default of .tsv)."),
    ] = None

    @property
    def separator(self) -> str | None:
        """The delimiter as a character.

        Raises:
            ConfigError: more than one character.
        """
        mark = {"tab": "\t", "\\t": "\t"}.get(self.delimiter or "", self.delimiter)
        if mark is not None and len(mark) != 1:
            raise ConfigError(f"--delimiter is one character, or 'tab'; got {self.delimiter!r}")
        return mark


@Parameter(name="*", group=FILE_GROUP)
@dataclass(frozen=True)
class LabelledColumns(TextColumns):
    """How a table holds its texts and labels."""

    label: Annotated[
        str | None,
        Parameter(
            help="Default: guessed from the file, and told. Several (a,b,c): each holds 1 or 0 for its own label."
        ),
    ] = None
    multi_label: Annotated[
        bool, Parameter(negative=(), help="The label column holds any number of labels a row, as in 'news|sport'.")
    ] = False
    label_separator: Annotated[str, Parameter(help="Between the labels of a row, with --multi-label.")] = "|"

    @property
    def are_given(self) -> bool:
        """Whether the user said anything."""
        named = (self.text, self.text_pair, self.label, self.delimiter, self.quoting)
        return self.multi_label or any(value is not None for value in named)

    def task(self, data: Path, **known: Any) -> TextTask:
        """The task ``csv`` of a file; ``known`` as in :func:`bertkit.tasks.csv_task`."""
        from bertkit.tasks import csv_task

        if self.multi_label:
            known = {**known, "problem": "multi_label"}
        return csv_task(
            data,
            text=self.text,
            text_pair=self.text_pair,
            label=self.label.split(",") if self.label and "," in self.label else self.label,
            label_separator=self.label_separator,
            delimiter=self.separator,
            quoting=self.quoting,
            encoding=self.encoding,
            **known,
        )


@Parameter(name="*", group=Group("CoNLL files (task ner)", sort_key=1))
@dataclass(frozen=True)
class TagColumns:
    """How a file holds words and their tags, one word a line."""

    word_column: Annotated[
        int | None,
        Parameter(help="Column of the words, counted from 1. Default: as the run was trained, or the first."),
    ] = None
    tag_column: Annotated[
        int | None, Parameter(help="Column of the tags. Default: as the run was trained, or -1, the last.")
    ] = None
    joiner: Annotated[
        str | None,
        Parameter(
            help="What stands between two words of the text; '' for scripts without blanks. Default: as the run was "
            "trained, or a blank."
        ),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """What the user said, by the arguments of :func:`bertkit.tasks.ner_task`."""
        return {name: value for name, value in asdict(self).items() if value is not None}


TEXT_COLUMNS, LABELLED_COLUMNS, TAG_COLUMNS = TextColumns(), LabelledColumns(), TagColumns()


def find_task(
    name: str, data: Path, columns: LabelledColumns, on_error: OnError, tags: TagColumns = TAG_COLUMNS
) -> AnyTask:
    """The task of a name on the command line, with the columns that were named beside it."""
    from bertkit.tasks import get_task, ner_task

    check_columns(name, columns, tags)
    if name == "csv":
        return columns.task(data, on_error=on_error)
    if name == "ner":
        return ner_task(data, on_error=on_error, encoding=columns.encoding, **tags.given)
    return in_encoding(get_task(name), columns.encoding)


def in_encoding(task: AnyTask, encoding: str | None) -> AnyTask:
    """A task of texts whose files are read in an encoding; None leaves it as it is.

    Raises:
        ConfigError: the task's files are always in UTF-8.
    """
    from bertkit.tasks import TextTask

    if encoding is None:
        return task
    if not isinstance(task, TextTask):
        raise ConfigError(f"task {task.name} reads UTF-8 only; convert the files and leave --encoding out")
    return replace(task, columns=replace(task.columns, encoding=encoding))


def check_columns(name: str, columns: LabelledColumns, tags: TagColumns) -> None:
    """Raises ConfigError where an option names columns that the task of that name does not read."""
    for task, given, known in (("csv", columns, LABELLED_COLUMNS), ("ner", tags, TAG_COLUMNS)):
        values = asdict(known)
        changed = [key for key, value in asdict(given).items() if value != values[key] and key != "encoding"]
        options = [f"--{key.replace('_', '-')}" for key in changed]
        if name != task and options:
            told = ", ".join(options)
            raise ConfigError(
                f"task {name} does not read {told}, only task {task} does; leave out what it does not read"
            )
    if columns.label_separator != LABELLED_COLUMNS.label_separator and not columns.multi_label:
        raise ConfigError("--label-separator has a meaning with --multi-label only; give both, or leave it out")
