"""Data that is in memory: rows become a table, for which a path stands, so that the code that reads files reads them.

Rows are a frame of pandas or polars, an Arrow table, a dataset of the library ``datasets``, a list with a mapping a
row, or a mapping of columns to their values. Cells are as in a Parquet file: text, numbers, lists, None.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bertkit.errors import DataError, InputError, shorten
from bertkit.system.console import say
from bertkit.system.untrusted_files import Json, half_pair_at
from bertkit.tasks.examples import SPLITS, Split
from bertkit.tasks.reading.bad_rows import HALF_PAIR, REMOVE, BadRows

if TYPE_CHECKING:
    _Path = Path
else:
    _Path = type(Path())  # before Python 3.12, Path itself has no subclasses


class HasColumns(Protocol):
    """Anything whose columns are values by name."""

    def __getitem__(self, name: str, /) -> Iterable[object]: ...


#: Rows in memory, or in a mapping those of each split; see the top of the file.
InMemory = HasColumns | Iterable[Mapping[str, object]]
#: What training takes: a path, ``hub:owner/name``, rows in memory, or a mapping of splits to any of these.
Data = str | Path | InMemory
FORMS = (
    "a path, a DataFrame (pandas or polars), a pyarrow.Table, a datasets.Dataset, a list of dicts, a dict of lists, or "
    'such data by split, as in {"train": ..., "dev": ...}'
)


class Given(_Path):
    """Stands for data that is no file of its own where a path is expected: rows in memory, or files by split."""

    split: Split | None = None
    by_split: Mapping[Split, Path] | None = None
    columns: Sequence[tuple[str, Sequence[Any]]] = ()
    names_of_labels: Mapping[str, tuple[str, ...]] = {}

    @property
    def splits(self) -> dict[Split, Path]:
        """The data of each split; rows that are of no split are train."""
        return {self.split or "train": self} if self.by_split is None else dict(self.by_split)


def given_data(data: Data, dev: Data | None, names: Mapping[Split, Sequence[str]], name: str = "data") -> str | Path:
    """A path unchanged; for data in memory, or for ``dev`` beside it, a path that stands for it.

    ``names``: what a split may be called. ``name``: of the rows, in messages. Raises InputError for what is none of
    :data:`FORMS`.
    """
    parts = _by_split(data, names)
    if parts is None:
        if dev is None:
            return data if isinstance(data, str | Path) else _of_rows(data, name, None)
        parts = {"train": data}
    if dev is not None:
        if "dev" in parts:
            raise InputError('dev= and data["dev"] are both given; leave one out')
        parts["dev"] = dev
    paths = {split: _part(parts[split], split) for split in SPLITS if split in parts}
    files = [f"{split}={path}" for split, path in paths.items() if not isinstance(path, Given)]
    whole = Given(f"<{', '.join(files)}>" if files else f"<{name}>")
    whole.by_split = paths
    return whole


def _part(data: Data, split: Split) -> Path:
    if not isinstance(data, str | Path):
        return _of_rows(data, split, split)
    path = Path(data)
    if not path.is_file():
        raise DataError(f"{split}: {path} is not a file; give files of splits one by one, or a folder with all as data")
    return path


def _by_split(data: Data, names: Mapping[Split, Sequence[str]]) -> dict[Split, Data] | None:
    """The data of each split where ``data`` maps splits to data, and not columns to values."""
    if not isinstance(data, Mapping) or not data or not all(map(_is_data, data.values())):
        return None
    splits = {name: split for split, all_names in names.items() for name in all_names}
    known = {name: splits.get(str(name).casefold()) for name in data}
    if not any(known.values()):
        raise InputError(f"data has {', '.join(map(repr, data))}; name its parts train, dev and test")
    found: dict[Split, Data] = {}
    for name, part in data.items():
        split = known[name]
        if split is None:
            say(f"data[{name!r}] is of no known split and left out")
        elif split in found:
            raise InputError(f"data has two parts for {split}: {', '.join(map(repr, data))}; leave one out")
        else:
            found[split] = part
    return found


def _is_data(value: object) -> bool:
    if isinstance(value, str | Path | Mapping):
        return True
    if isinstance(value, Sequence):
        return bool(value) and isinstance(value[0], Mapping)
    return any(hasattr(type(value), name) for name in ("columns", "column_names"))  # a Series has none


def _of_rows(rows: Any, name: str, split: Split | None) -> Given:
    path = Given(f"<{name}>")
    path.split = split
    path.columns = [(str(column), list(values)) for column, values in _columns(rows)]
    if not path.columns or not path.columns[0][1]:
        raise DataError(f"{path} has no rows")
    lengths = {column: len(values) for column, values in path.columns}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{path}: the columns differ in length: {shorten([f'{n} {c}' for c, n in lengths.items()])}")
    path.names_of_labels = _names_of_labels(rows)
    return path


def _columns(rows: Any) -> Iterable[tuple[object, Iterable[Any]]]:
    """The columns of rows of any form, in their order."""
    if hasattr(rows, "collect") and hasattr(rows, "lazy"):  # a LazyFrame of polars
        rows = rows.collect()
    if hasattr(rows, "iloc") and hasattr(rows, "columns"):  # pandas, whose names may be no text and occur twice
        return [(name, rows.iloc[:, place].tolist()) for place, name in enumerate(rows.columns)]
    if hasattr(rows, "get_columns"):  # polars
        return [(column.name, column.to_list()) for column in rows.get_columns()]
    if hasattr(rows, "schema") and hasattr(rows, "to_pydict"):  # Arrow
        return [(name, rows.column(place).to_pylist()) for place, name in enumerate(rows.schema.names)]
    if hasattr(rows, "column_names"):  # datasets
        plain = rows.with_format(None) if hasattr(rows, "with_format") else rows
        return [(name, plain[name]) for name in plain.column_names]
    if isinstance(rows, Mapping):
        for name, values in rows.items():
            if isinstance(values, str | set | frozenset) or not isinstance(values, Iterable):
                raise InputError(f"data[{name!r}] is {values!r:.40}; expected the values of a column, one a row")
        return rows.items()
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes | np.ndarray) and not hasattr(rows, "iloc"):
        return _columns_of_records(list(rows))
    series = "; of a Series make a frame with .to_frame()" if hasattr(rows, "iloc") else ""
    raise InputError(f"data is a {type(rows).__name__}{series}; expected {FORMS}")


def with_facts(record: Any) -> Any:
    """A row; of a text and a mapping, as in the training data of older releases of spaCy, one mapping of both."""
    if isinstance(record, list | tuple) and len(record) == 2 and isinstance(record[0], str):
        text, facts = record
        return {"text": text, **facts} if isinstance(facts, Mapping) else record
    return record


def _columns_of_records(records: list[Any]) -> list[tuple[object, list[Any]]]:
    """The columns of rows that are mappings, or as spaCy's training data texts with one each; a row may lack some."""
    records = [with_facts(record) for record in records]
    for number, record in enumerate(records):
        if not isinstance(record, Mapping):
            got = f"{type(record).__name__}, {record!r:.60}"
            pair = isinstance(record, list | tuple) and len(record) == 2
            raise InputError(
                f'data: row {number} (counted from 0) is a {got}; expected a dict such as {{"text": ...}}'
                + ('; write [{"text": text, "label": label} for text, label in data]' if pair else "")
            )
    names = dict.fromkeys(name for record in records for name in record)
    return [(name, [record.get(name) for record in records]) for name in names]


def _names_of_labels(rows: Any) -> dict[str, tuple[str, ...]]:
    """What numbers in columns of labels stand for, as a dataset of the library ``datasets``, or its table, says."""
    features = getattr(rows, "features", None)
    if isinstance(features, Mapping):
        items = [(str(column), feature) for column, feature in features.items()]
        named = [(column, getattr(getattr(feature, "feature", feature), "names", None)) for column, feature in items]
        return {column: tuple(names) for column, names in named if names}
    notes = rows.schema.metadata if hasattr(type(rows), "to_pydict") else None  # of Arrow
    if not isinstance(notes, Mapping):
        return {}
    return {name: found for name in rows.schema.names if (found := names_in_metadata(notes, name)) is not None}


def names_in_metadata(notes: Mapping[bytes, bytes], column: str) -> tuple[str, ...] | None:
    """Names of the labels of a column in the metadata that ``datasets`` writes into an Arrow schema; None without."""
    try:
        feature = json.loads(notes[b"huggingface"])["info"]["features"][column]
        names = feature.get("names") or feature["feature"]["names"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def plain_cell(value: Any) -> Json:
    """A value as a file would hold it: no scalars of numpy, no missing values of pandas."""
    if isinstance(value, np.generic | np.ndarray):
        return plain_cell(value.tolist())
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain_cell(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_cell(part) for part in value]
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    found: Json = value
    return found


class GivenTable:
    """The table of rows in memory, counted from 0 as their library does."""

    def __init__(self, path: Given, bad: BadRows) -> None:
        self._path, self._bad = path, bad
        self.columns = tuple(name for name, _ in path.columns)

    def rows(self, names: Sequence[str]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """As :meth:`bertkit.tasks.reading.tables.Table.rows`."""
        columns = dict(self._path.columns)
        for row, cells in enumerate(zip(*(columns[name] for name in names), strict=True)):
            values = tuple(map(plain_cell, cells))
            if any(isinstance(value, str) and half_pair_at(value) is not None for value in values):
                self._bad.report(self._path, row, "half a character", HALF_PAIR, REMOVE)
            else:
                yield row, values
