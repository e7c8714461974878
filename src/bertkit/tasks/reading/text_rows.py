"""The texts of a file: one per line, or a column of a table; each with its line and the other columns of its row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bertkit.config.file_columns import Columns
from bertkit.errors import DataError
from bertkit.system.console import say_once
from bertkit.system.untrusted_files import Json
from bertkit.tasks.examples import place_of
from bertkit.tasks.reading.bad_rows import BadRows, is_missing
from bertkit.tasks.reading.file_rows import FileRow, Samples
from bertkit.tasks.reading.lines import Lines, check_file
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.reading.tables import DelimitedTable, JsonTable, Table, column_of, find_column, open_table, records

#: Columns that are looked for where none is named, the likeliest first; compared without case.
USUAL = (
    *("text", "sentence", "review", "tweet", "content", "comment", "body", "document", "message", "utterance"),
    *("question", "query", "title", "description", "headline", "abstract", "input"),
)
#: Two columns that together are a pair of texts.
USUAL_PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text_a", "text_b"),
    ("text", "text_pair"),
    ("text1", "text2"),
    ("sentence_a", "sentence_b"),
    ("query", "passage"),
    ("question", "sentence"),
    ("#1 string", "#2 string"),
)


def read_texts(
    source: Path, columns: Columns, *, inferred: bool = False, may_lack: bool = False, mark: bool = False
) -> tuple[Samples, Iterator[FileRow]]:
    """The text, or the two texts, of each row of a file, as a stream; and the columns of other content than those.

    inferred: nobody has asked for ``columns.text``, which are those of the data that a model was trained on:
        :data:`USUAL` may be taken for them. Where the names differ, it is said which column is read.
    may_lack: rows of JSON and Parquet may lack a text, which is then empty, as an empty cell is; else a DataError.
    mark: a row with something else than a text has a ``fault`` and empty texts; else a DataError.
    """
    check_file(source)
    if kind_of(source) is None:
        tabs = next(iter(Lines(source, BadRows("skip"), columns.encoding)), "").count("\t")
        if tabs > 1:  # one is between the texts of a pair
            say_once(f"{source}: each line is read as one text, but the first has {tabs} tabs: name a table .tsv")
        lines = Lines(source, BadRows(), columns.encoding)
        return {}, (FileRow(text.removesuffix("\n").removesuffix("\r"), None, {}, lines.number) for text in lines)
    named = () if columns.text == USUAL else columns.text
    wanted = tuple(dict.fromkeys((*named, *USUAL))) if inferred else named or USUAL
    table = open_table(source, replace(columns, text=wanted), BadRows())
    alone = len(table.columns) == 1 and column_of(table.columns, wanted) is None and (inferred or not named)
    if alone:
        names = [*table.columns]
        more = "; if that is a text and no title, name the file .txt" if isinstance(table, DelimitedTable) else ""
        say_once(f"{source}: its only column, {names[0]!r}, is read{more}")
    else:
        names = [find_column(source, table.columns, wanted, "text", "choose one with --text")]
        if inferred or not named:
            _say_which(source, names[0], named, as_named=column_of(table.columns, named) is not None)
    if columns.text_pair:
        names.append(
            find_column(source, table.columns, columns.text_pair, "second text", "choose one with --text-pair")
        )
    taken = samples_of(table)
    for name, field in zip(names, ("text", "text_pair"), strict=False):
        if name == field:
            del taken[name]
    return taken, _texts(source, records(table), names, may_lack, mark)


def _say_which(source: Path, name: str, trained: Sequence[str], *, as_named: bool) -> None:
    """Say which column is read; ``trained``: the names of that in training, of which ``as_named`` one is there."""
    if trained and not as_named:
        known = f"{trained[0]!r}, which was read in training"
        say_once(f"{source}: column {name!r} is read; there is no column {known}. Choose another with --text")
    elif name.casefold() not in USUAL[:2]:
        as_trained = ", as in training" if as_named else ""
        say_once(f"{source}: column {name!r} is read{as_trained}; choose another with --text")


def samples_of(table: Table) -> dict[str, dict[type, Json]]:
    """The columns of a table; of JSON with a value of each type."""
    found: dict[str, dict[type, Json]] = {name: {} for name in table.columns}
    if isinstance(table, JsonTable):  # an object may have more keys than the first one, and values of other types
        for _, record in table.objects():
            for name, value in record.items():
                found.setdefault(name, {})[type(value)] = value
    return found


def all_columns(source: Path, columns: Columns) -> tuple[Samples, dict[int, dict[str, Json]]]:
    """The columns of a table, and each of its rows by the line that an example of it has."""
    table = open_table(source, columns, BadRows())
    return samples_of(table), dict(records(table))


def _texts(
    source: Path, rows: Iterable[tuple[int, dict[str, Json]]], names: Sequence[str], may_lack: bool, mark: bool
) -> Iterator[FileRow]:
    for line, record in rows:
        texts = [record.get(name) for name in names]
        if may_lack:
            texts = ["" if is_missing(text) and not isinstance(text, str) else text for text in texts]
        wrong = [pair for pair in zip(names, texts, strict=True) if not isinstance(pair[1], str)]
        fault = f"column {wrong[0][0]!r} holds {wrong[0][1]!r:.40}, expected a text" if wrong else ""
        if fault and not mark:
            raise DataError(f"{place_of(source, line)}: {fault}")
        first, *second = ["" if fault else str(text) for text in texts]
        yield FileRow(first, second[0] if second else None, record, line, fault)
