"""Texts in memory, for an index and for groups: lists, columns, frames, lists of dicts, mappings of ids to texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from bertkit.errors import InputError, TextError, shorten
from bertkit.inference.retrieval.index_files import Row
from bertkit.inference.retrieval.index_writer import Located
from bertkit.inference.retrieval.source_texts import ID
from bertkit.tasks.reading.given_rows import Given, given_data
from bertkit.tasks.reading.listed_texts import frame_columns, is_nothing, listed
from bertkit.tasks.reading.tables import column_of
from bertkit.tasks.reading.text_rows import USUAL

#: What an index calls the source of texts that came from no file.
MEMORY = "memory"
#: A list (or a column) of texts, one with a dict a row, a mapping of ids to texts, or a frame with named columns.
GivenTexts: TypeAlias = "Iterable[str] | Iterable[Mapping[str, Any]] | Mapping[str, str] | Mapping[str, list[Any]]"


class Listed(NamedTuple):
    """Texts in their order, and the id of each; ids None: there are none."""

    texts: list[Any]
    ids: list[Any] | None


def listed_texts(texts: Any, text: str | None = None, id: str | None = None) -> Listed:
    """The texts of anything that :data:`GivenTexts` says, and their ids.

    text, id: names of columns; None: a usual name of a column of texts, or the only column; :data:`ID`, if it is there.
    """
    if isinstance(texts, str | bytes):
        raise InputError(
            f"texts must be a list or a table of texts, or a folder of documents, got one text, {texts!r:.40}"
        )
    if isinstance(texts, Mapping) and all(isinstance(value, str) for value in texts.values()):
        return Listed(list(texts.values()), list(texts))
    table = isinstance(texts, Mapping) or frame_columns(texts) is not None
    rows = [] if table else listed(texts, "texts")
    if table or (rows and isinstance(rows[0], Mapping)):
        found = given_data(texts if table else rows, None, {})
        assert isinstance(found, Given), "these rows are not in a file"
        return _of_columns(dict(found.columns), text, id)
    if text is not None or id is not None:
        raise InputError(f"text={text!r} and id={id!r} are names of columns, and these texts have none; leave them out")
    return Listed(rows, None)


def _of_columns(columns: Mapping[str, Sequence[Any]], text: str | None, id: str | None) -> Listed:
    for name in (text, id):
        if name is not None and name not in columns:
            raise InputError(f"there is no column {name!r}; the columns are {shorten(columns)}")
    others = [name for name in columns if name not in (id, ID)]
    found = text or column_of(others, USUAL) or (others[0] if len(others) == 1 else None)
    if found is None:
        raise InputError(f"which column has the texts? Name it with text=; the columns are {shorten(columns)}")
    ids = id or (ID if ID in columns and found != ID else None)
    return Listed(list(columns[found]), None if ids is None else list(columns[ids]))


def checked_texts(texts: Any) -> list[str]:
    """A list of texts, none of them empty or missing; TextError with the number of the first that is."""
    found = listed_texts(texts).texts
    for number, value in enumerate(found):
        if not isinstance(value, str) or not value.strip():
            raise TextError(f"text {number} (counted from 0) is {value!r:.40}; leave such rows out")
    if not found:
        raise InputError("there are no texts")
    return found


def located_texts(given: Listed, first: int = 0) -> list[Located]:
    """Texts as rows of an index, all of them checked; those without ids are numbered from ``first`` on."""
    found = []
    ids = range(first, first + len(given.texts)) if given.ids is None else given.ids
    for number, (value, name) in enumerate(zip(given.texts, ids, strict=True)):
        where = f"row {number} (counted from 0)"
        if not isinstance(value, str) or not value.strip():
            raise TextError(f"{where} has no text, but {value!r:.40}; leave such rows out")
        plain = str(name)
        if is_nothing(name) or not plain.strip() or plain in ("None", "nan"):
            raise InputError(f"{where} has no id, but {name!r:.40}; every text needs its own, or leave the column out")
        found.append(Located(Row(plain, value, MEMORY), where))
    return found
