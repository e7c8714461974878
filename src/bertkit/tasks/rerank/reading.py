"""From a table of queries and documents to examples.

Rows are one of these, and rows with the same query belong together wherever they stand:

* a query, a document and a label: 1 or 0, or a grade from 0 on, of which more is better;
* a query, a list of documents and a list of labels (JSON, Parquet);
* a query and a document in a column ``positive``, which is relevant, and perhaps documents in columns ``negative``,
  ``negatives`` (a list) or ``negative_1``, ``negative_2`` ..., which are not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bertkit.errors import counted
from bertkit.tasks.examples import Examples, Split, row_name
from bertkit.tasks.reading.bad_rows import BadRows, OnError, RowError, all_or_none, is_missing, text_in
from bertkit.tasks.reading.tables import (
    JsonTable,
    Table,
    column_of,
    columns_to_search,
    find_column,
    names_of,
    open_table,
)
from bertkit.tasks.rerank.task import POSITIVE, RerankExample, RerankTask

_NEGATIVE = re.compile(r"negatives?|negative_\d+")
#: A document and its label; None where a test file hides it.
Graded = tuple[str, float | None]


def read_rerank(task: RerankTask, path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[RerankExample]:
    """The queries of one file with all of their documents; labels may be absent from test alone."""
    bad = BadRows(on_error, gather=True)
    table = open_table(path, task.columns, bad)
    places = _find_places(task, path, table, split)
    found: dict[str, dict[str, tuple[float | None, int]]] = {}
    for line, values in table.rows(places.names):
        try:
            asked, row = _row(places, values, split)
            _refuse_repeated(row, found.get(asked, {}), path)
        except RowError as fault:
            bad.report(path, line, fault.kind, str(fault))
            continue
        found.setdefault(asked, {}).update({text: (gain, line) for text, gain in row})
    bad.finish(path, len(found), f"{path} has the columns {names_of(table.columns)} but no rows")
    examples = [_example(query, documents, str(path)) for query, documents in found.items()]
    if split == "test":
        all_or_none(examples, [example.gains is not None for example in examples])
    return Examples(examples, path, split, bad.skipped)


class _Places(NamedTuple):
    """The columns that are read; ``label`` None: every document is relevant, or nothing is known of any."""

    query: str
    document: str
    label: str | None
    negatives: list[str]

    @property
    def names(self) -> list[str]:
        return [self.query, self.document, *([self.label] if self.label else []), *self.negatives]


def _find_places(task: RerankTask, path: Path, table: Table, split: Split) -> _Places:
    columns, name_it = task.columns, "name it so, or choose one (finetune: {})"
    query = find_column(path, table.columns, columns.text, "query", name_it.format("--text"))
    there, advice = table.columns, name_it.format("--text-pair")
    document = find_column(path, there, columns.text_pair, "document", advice, taken=[query])
    if document == POSITIVE:
        keys = [name for name in table.columns if name != query]
        if isinstance(table, JsonTable):  # its columns are those of the first row
            keys = list(dict.fromkeys(key for _, record in table.objects() for key in record))
        return _Places(query, document, None, [key for key in keys if _NEGATIVE.fullmatch(key)])
    if split == "test":
        there = columns_to_search(table, columns.label)
        if column_of([name for name in there if name != query], columns.label) is None:
            return _Places(query, document, None, [])
    advice = f"choose one with --label; a document that is relevant in every row belongs in a column {POSITIVE!r}"
    return _Places(query, document, find_column(path, there, columns.label, "label", advice, taken=[query]), [])


def _row(places: _Places, values: Sequence[object], split: Split) -> tuple[str, list[Graded]]:
    asked = text_in(f"column {places.query!r}", values[0])
    if places.label is not None:
        return asked, _graded(places.document, values[1], places.label, values[2], split)
    known = 1.0 if places.document == POSITIVE else None
    row: list[Graded] = [(text, known) for text in _listed(places.document, values[1])]
    there = [(name, cell) for name, cell in zip(places.negatives, values[2:], strict=True) if not is_missing(cell)]
    return asked, [*row, *((text, 0.0) for name, cell in there for text in _listed(name, cell))]


def _example(query: str, documents: dict[str, tuple[float | None, int]], source: str) -> RerankExample:
    gains = [gain for gain, _ in documents.values() if gain is not None]
    known = tuple(gains) if len(gains) == len(documents) else None
    lines = tuple(line for _, line in documents.values())
    return RerankExample(query, tuple(documents), known, min(lines), source, lines)


def _graded(column: str, cell: object, label_column: str, label: object, split: Split) -> list[Graded]:
    """The documents of a cell, one or a list, with their labels, as many; a list may have none in test."""
    documents = _listed(column, cell)
    labels = label if isinstance(label, list) else [label]
    if label is None and split == "test":
        labels = [None] * len(documents)
    elif len(labels) != len(documents) or isinstance(label, list) != isinstance(cell, list):
        got = f"{counted(len(documents), 'document')} in column {column!r}, but {counted(len(labels), 'label')}"
        raise RowError("number of labels", f"{got} in column {label_column!r}; expected one for each")
    return [(text, _gain(label_column, value, split)) for text, value in zip(documents, labels, strict=True)]


def _listed(column: str, cell: object) -> list[str]:
    if isinstance(cell, list) and not cell:
        raise RowError("no documents", f"column {column!r} holds an empty list")
    return [text_in(f"column {column!r}", part) for part in (cell if isinstance(cell, list) else [cell])]


def _gain(column: str, value: object, split: Split) -> float | None:
    hidden = is_missing(value) or str(value).strip() == "-1"
    if split == "test" and hidden:
        return None
    if is_missing(value):
        raise RowError("missing label", f"column {column!r} has no label ({value!r})")
    try:
        gain = float(value if isinstance(value, bool) else str(value))
    except ValueError:
        gain = math.nan
    if not 0 <= gain < math.inf:
        raise RowError(
            "unknown label",
            f"column {column!r} holds {value!r:.40}, expected how relevant the document is: 1 or 0, or a grade from 0",
        )
    return gain


def _refuse_repeated(row: Sequence[Graded], own: dict[str, tuple[float | None, int]], path: Path) -> None:
    seen: set[str] = set()
    for text, _ in row:
        if text in seen or text in own:
            place = f"in {row_name(path, own[text][1])} already" if text in own else "in this row twice"
            raise RowError("repeated document", f"the query has the document {text!r:.40} {place}; one label is enough")
        seen.add(text)
