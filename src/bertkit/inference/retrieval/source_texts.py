"""Texts of files with their ids, as an index takes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bertkit.config.file_columns import Columns
from bertkit.errors import ConfigError, DataError
from bertkit.system.json_files import printable
from bertkit.tasks.examples import place_of
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.reading.text_rows import read_texts

#: The column of ids, where there is one and none is named.
ID = "id"


class SourceText(NamedTuple):
    """A text, its id, or None, and where it is: what the index calls the file, and the line."""

    source: str
    line: int
    id: str | None
    text: str


def texts_with_ids(path: Path, columns: Columns, column: str | None) -> Iterator[SourceText]:
    """The texts of a file as a stream; ids are in ``column``, None: in :data:`ID`, if there is such a column."""
    if column is not None and kind_of(path) is None:
        raise ConfigError(f"{path} holds one text per line and has no columns; leave the column of ids out (--id)")
    source = source_name(path)
    for row in read_texts(path, columns)[1]:
        name = row.columns.get(column or ID)
        if name is None and column is None:
            yield SourceText(source, row.line, None, row.text)
        elif isinstance(name, bool) or not isinstance(name, str | int) or name == "":
            where = place_of(source, row.line)
            raise DataError(f"{where}: column {column or ID!r} holds {name!r:.40}, expected the row's id")
        else:
            yield SourceText(source, row.line, str(name), row.text)


def source_name(path: Path) -> str:
    """What to call a file."""
    return printable(Path(os.path.normpath(path)).as_posix())
