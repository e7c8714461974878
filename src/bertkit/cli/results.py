"""What commands do with results beside printing them: ``--out``, a file of rows with all columns of the input."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from bertkit.cli.common_options import Output, check_format, write_json
from bertkit.errors import ConfigError, counted
from bertkit.system.console import one_line, say

if TYPE_CHECKING:
    from bertkit.inference.row_cells import Row
    from bertkit.tasks.reading.file_rows import FileRow, Samples

#: Of a page with marked texts.
PAGE = ".html"
#: The column that names a row, in all commands and in search indexes.
ID = "id"
GROUP = Group("Results", sort_key=7)
Excel = Annotated[
    bool,
    Parameter(
        negative=(),
        help="Write --out X.csv as a German or French Excel opens it: semicolons, and decimal commas in our numbers.",
        group=GROUP,
    ),
]
#: What is found in the text of a row: some, each with values by name.
Found = Iterable[tuple["FileRow", Sequence[Mapping[str, Any]]]]


@Parameter(name="*", group=GROUP)
@dataclass(frozen=True)
class ResultFile:
    """Where results go instead of standard output."""

    out: Annotated[
        Path | None,
        Parameter(
            alias="-o",
            help="Write the results with all columns of the input to this .csv, .tsv, .xlsx, .parquet or .jsonl file.",
        ),
    ] = None
    excel: Excel = False

    def check(self, others: Collection[str] = ()) -> bool:
        """Whether rows are written; ConfigError before any work for what could not be. others: endings of no rows."""
        check_excel(self.out, excel=self.excel)
        if self.out is None or self.out.suffix in others:
            return False
        from bertkit.inference.row_files import FORMATS

        check_format(self.out, (*FORMATS, *others))
        if self.out.exists():
            raise ConfigError(f"--out {self.out} exists already; remove it or choose another name")
        return True

    def write(self, rows: Iterable[Row], taken: Samples, common: Output) -> None:
        """Write rows, and say so."""
        count = self.write_quietly(rows, taken)
        if common.json:
            write_json({"out": str(self.out), "rows": count})

    def write_quietly(self, rows: Iterable[Row], taken: Samples) -> int:
        """The same without an object on standard output; returns the number of rows."""
        from bertkit.inference.row_files import claimed, write_rows

        assert self.out is not None
        with claimed(self.out):
            count = write_rows(rows, self.out, taken, excel=self.excel)
        say(f"wrote {counted(count, 'row')} to {self.out}")
        return count

    def write_lists(self, found: Found, name: str, taken: Samples, common: Output) -> None:
        """Write what was found in each text: JSON lines have one line a text, with all as a list of that name.

        Tables have one row for each thing found, with the columns of the input again, and one row for a text without.
        """
        assert self.out is not None
        nested = self.out.suffix == ".jsonl"

        def rows() -> Iterator[Row]:
            for row, parts in found:
                listed: Sequence[Mapping[str, Any]] = [{name: list(parts)}] if nested else parts or [{}]
                yield from (beside(row, part, taken) for part in listed)

        self.write(rows(), taken, common)


# Subclasses stand here, because the annotations of their fields are looked up in the module of the subclass.


@Parameter(name="*", group=GROUP)
@dataclass(frozen=True)
class TagFile(ResultFile):
    """Where entities go."""

    out: Annotated[
        Path | None,
        Parameter(
            alias="-o",
            help="Write a row for each entity, with all columns of the input (.csv, .tsv, .xlsx, .parquet), or the "
            "texts with lists of entities (.jsonl); or also write a page with the entities marked (.html).",
        ),
    ] = None


@Parameter(name="*", group=GROUP)
@dataclass(frozen=True)
class AnswerFile(ResultFile):
    """Where answers go."""

    out: Annotated[
        Path | None,
        Parameter(
            alias="-o",
            help="Write a row for each answer (.csv, .tsv, .xlsx, .parquet, .jsonl), the contexts with their answers "
            "marked, as a page (.html), or with --file {id: answer}, as in official submissions (.json).",
        ),
    ] = None


def check_excel(out: Path | None, *, excel: bool) -> None:
    """ConfigError for ``--excel`` without a CSV file to write."""
    if excel and (out is None or out.suffix != ".csv"):
        raise ConfigError("--excel goes with --out X.csv; a .xlsx file opens in any Excel without it")


def beside(row: FileRow, fields: Mapping[str, Any], taken: Samples) -> Row:
    """All columns of a row, or the text that is one, and some fields of ours, whose names differ from those."""
    from bertkit.inference.predict_files import joined

    if not row.columns:
        pair = {} if row.pair is None else {"text_pair": row.pair}
        row = row._replace(columns={"text": row.text, **pair})
    return joined(row, fields, {*taken, *row.columns})


def id_of(row: FileRow) -> str | None:
    """What names a row in its file."""
    value = row.columns.get(ID)
    return None if value is None or value == "" else str(value)


def named(row: FileRow) -> dict[str, str]:
    """Its id, as the first field of an object, where there is one."""
    name = id_of(row)
    return {} if name is None else {ID: name}


def facts_of(row: FileRow) -> dict[str, str]:
    """Id and texts of a row as the first fields of an object."""
    return {**named(row), "text": row.text, **({} if row.pair is None else {"text_pair": row.pair})}


def shown(row: FileRow) -> str:
    """Id and texts of a row as a part of a line, with tabs between them."""
    return "\t".join(map(one_line, facts_of(row).values()))


def with_id(row: FileRow, line: str) -> str:
    """``line`` behind the row's id and a tab, where there is one."""
    name = id_of(row)
    return line if name is None else f"{one_line(name)}\t{line}"


def row_with(**columns: Any) -> FileRow:
    """A row of no file: of texts that are arguments, by what they are."""
    from bertkit.tasks.reading.file_rows import FileRow

    return FileRow("", None, columns, 0)
