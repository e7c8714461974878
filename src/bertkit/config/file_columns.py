"""Which columns of a file are read, and the options that say so: plain classes, of which commands make options."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal

from bertkit.errors import ConfigError

Quoting = Literal["none", "csv"]


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a file a task reads.

    text, text_pair, label: names to look for, the first one present is taken; ``text_pair`` empty = one text.
    headerless: the columns of a file whose first row is data (CoLA); such a file is known by a first row that does
        not hold a text column's name.
    quoting: of delimited text: "none" (every character is data, the GLUE convention), "csv" (double quotes enclose),
        or None: "csv" for .csv and "none" for .tsv, where a tsv that is visibly quoted is an error.
    delimiter: None means a comma in .csv and a tab in .tsv.
    empty_pair: the second text may be empty (full QQP has such rows).
    label_columns: of a task with several labels per row, where each label has a column of its own that holds 1 or 0:
        their names, in the order of the labels; ``label`` is not looked at then.
    encoding: of text files; None means as :mod:`bertkit.tasks.reading.encodings` finds.
    sheet: of Excel workbooks, by name or by number from 1; None means the first one that is not empty.
    label_separator: separates several labels of a row in one text column.
    """

    text: tuple[str, ...]
    text_pair: tuple[str, ...] = ()
    label: tuple[str, ...] = ("label",)
    headerless: tuple[str, ...] = ()
    quoting: Quoting | None = None
    delimiter: str | None = None
    empty_pair: bool = False
    label_columns: tuple[str, ...] = ()
    label_separator: str = "|"
    encoding: str | None = None
    sheet: str | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """What an option says of itself, in the annotation of its field: ``--help`` shows the everyday ones."""

    help: str
    everyday: bool = True


@dataclass(frozen=True)
class FileOptions:
    """How files of one's own hold data: without any options."""

    #: Heading of the options of the class, where those of several kinds of tasks stand on one page.
    title: ClassVar[str] = "Files of your own"
    #: What a help page says of the tasks of the kind, a sentence or two.
    remarks: ClassVar[str] = ""

    @classmethod
    def taken_by(cls, name: str) -> Collection[str]:
        """The options that the task of that name takes."""
        return [option.name for option in fields(cls)]

    @property
    def given(self) -> dict[str, Any]:
        """The options that are not at their defaults, without the encoding, by name."""
        values = {option.name: (getattr(self, option.name), option.default) for option in fields(self)}
        return {name: value for name, (value, usual) in values.items() if value != usual and name != "encoding"}


@dataclass(frozen=True)
class EncodedOptions(FileOptions):
    """Files of text, in any encoding."""

    encoding: Annotated[
        str | None, Option("Encoding of text files; default: UTF-8, or as the file itself shows (UTF-16, cp1252).")
    ] = None


@dataclass(frozen=True)
class TextTable(EncodedOptions):
    """Tables of texts."""

    text: Annotated[
        str | None, Option("Column of the text (for rerank, the query); default: inferred from the file and reported.")
    ] = None
    text_pair: Annotated[
        str | None, Option("Column of the second text (for rerank, the document); default: inferred.")
    ] = None
    delimiter: Annotated[
        str | None,
        Option("Separator of fields; default: tab in .tsv; ',', ';' or tab in .csv, by its header.", everyday=False),
    ] = None
    quoting: Annotated[
        Literal["csv", "none"] | None,
        Option(
            "csv: double quotes enclose fields (default for .csv); none: they are text (default for .tsv).",
            everyday=False,
        ),
    ] = None

    sheet: Annotated[
        str | None, Option("Sheet of an Excel workbook, by name or number from 1; default: the first with rows.")
    ] = None

    @property
    def separator(self) -> str | None:
        """The delimiter as a character."""
        mark = {"tab": "\t", "\\t": "\t"}.get(self.delimiter or "", self.delimiter)
        if mark is not None and len(mark) != 1:
            raise ConfigError(f"--delimiter is one character, or 'tab'; got {self.delimiter!r}")
        return mark

    @property
    def places(self) -> Columns:
        """Where the texts are."""
        return self.places_or(Columns(()))

    def places_or(self, usual: Columns, label: str | None = None) -> Columns:
        """Where the texts and labels are, and where nothing is said, as usual."""
        return replace(
            usual,
            text=usual.text if self.text is None else (self.text,),
            text_pair=(self.text_pair,) if self.text_pair else usual.text_pair,
            label=(label,) if label else usual.label,
            delimiter=self.separator or usual.delimiter,
            quoting=self.quoting or usual.quoting,
            encoding=self.encoding or usual.encoding,
            sheet=self.sheet or usual.sheet,
        )
