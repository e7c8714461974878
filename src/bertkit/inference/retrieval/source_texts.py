"""Texts of files, as the other commands read them: one a line, or a column of a table."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from bertkit.errors import ConfigError, DataError
from bertkit.inference.predict_files import FileRow, read_texts
from bertkit.system.json_files import printable
from bertkit.tasks.examples import Columns
from bertkit.tasks.reading.lines import check_file
from bertkit.tasks.reading.splits import kind_of

#: Columns that are looked for where none is named.
USUAL = ("text", "sentence")
#: The column of ids, where there is one and none is named.
ID = "id"


def source_texts(path: Path, columns: Columns) -> tuple[Collection[str], Iterator[FileRow]]:
    """The rows of a file, as a stream, and the names of its columns with other content than the text.

    Raises:
        DataError: no file, a damaged one, or a row without a text; names file and line.
    """
    check_file(path)
    return read_texts(path, replace(columns, text=columns.text or USUAL, text_pair=()))


def texts_with_ids(path: Path, columns: Columns, column: str | None) -> tuple[str, Iterator[tuple[str | None, str]]]:
    """What to call a file, and its texts, each with its id, or None.

    ``column`` has the ids, text or whole numbers; None: :data:`ID`, if there is one.

    Raises:
        ConfigError: a column of a file with one text a line.
        DataError: as :func:`source_texts`; a row without an id.
    """
    if column is not None and kind_of(path) is None:
        raise ConfigError(f"{path} holds one text a line and has no columns; leave the column of ids out (--id)")
    source = source_name(path)
    _, rows = source_texts(path, columns)
    return source, _with_ids(source, rows, column)


def source_name(path: Path) -> str:
    """What to call a file."""
    return printable(Path(os.path.normpath(path)).as_posix())


def _with_ids(source: str, rows: Iterable[FileRow], column: str | None) -> Iterator[tuple[str | None, str]]:
    for number, row in enumerate(rows, start=1):
        name = row.columns.get(column or ID)
        if name is None and column is None:
            yield None, row.text
        elif isinstance(name, bool) or not isinstance(name, str | int) or name == "":
            raise DataError(
                f"{source}: row {number} has the id {name!r:.40} in column {column or ID!r}, expected a text"
            )
        else:
            yield str(name), row.text
