"""Texts of files with their ids, as an index takes them."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from bertkit.config.file_columns import Columns
from bertkit.errors import ConfigError, DataError, did_you_mean, shorten
from bertkit.system.json_files import printable
from bertkit.system.untrusted_files import Json
from bertkit.tasks.examples import place_of
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.reading.text_rows import read_texts

#: The column of ids, where there is one and none is named.
ID = "id"


class SourceText(NamedTuple):
    """A text, its id, or None, and where it is: what the index calls the file, and the line; ``more`` as in a row."""

    source: str
    line: int
    id: str | None
    text: str
    more: dict[str, str | int] | None = None


def texts_with_ids(
    path: Path, columns: Columns, column: str | None, shown: Collection[str] = ()
) -> Iterator[SourceText]:
    """The texts of a file as a stream; ids are in ``column``, None: in :data:`ID`, if there is such a column.

    ``shown`` are columns that are kept beside each text and shown with it.
    """
    if column is not None and kind_of(path) is None:
        raise ConfigError(f"{path} holds one text per line and has no columns; leave the column of ids out (--id)")
    if shown and kind_of(path) is None:
        raise ConfigError(f"{path} holds one text per line and has no columns to show; leave --show out")
    if own := [name for name in shown if name in ("id", "text", "source", "score", "query", "rank")]:
        raise ConfigError(f"every hit has its own {own[0]!r}; leave that column out of --show, or rename it")
    source = source_name(path)
    for row in read_texts(path, columns)[1]:
        name = row.columns.get(column or ID)
        if absent := [other for other in shown if other not in row.columns]:
            raise DataError(
                f"{place_of(source, row.line)}: there is no column {absent[0]!r} to show"
                f"{did_you_mean(absent[0], row.columns)}; it has {shorten(row.columns)}"
            )
        more = {other: _shown(row.columns[other]) for other in shown} or None
        if name is None and column is None:
            yield SourceText(source, row.line, None, row.text, more)
        elif isinstance(name, bool) or not isinstance(name, str | int) or name == "":
            where = place_of(source, row.line)
            raise DataError(f"{where}: column {column or ID!r} holds {name!r:.40}, expected the row's id")
        else:
            yield SourceText(source, row.line, str(name), row.text, more)


def _shown(value: Json) -> str | int:
    return "" if value is None else value if isinstance(value, str | int) else json.dumps(value, ensure_ascii=False)


def source_name(path: Path) -> str:
    """What to call a file."""
    return printable(Path(os.path.normpath(path)).as_posix())
