"""From a table of queries and documents to examples. Imports no torch.

Rows are one of these, and rows with the same query belong together wherever they stand:

* a query, a document and a label: 1 or 0, or a grade from 0 on, of which more is better;
* a query, a list of documents and a list of labels (JSON, Parquet);
* a query and a document in a column ``positive``, which is relevant, and perhaps documents in columns ``negative``,
  ``negatives`` (a list) or ``negative_1``, ``negative_2`` ..., which are not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from bertkit.tasks.examples import Examples, Split
from bertkit.tasks.reading.bad_rows import BadRows, OnError, RowError, all_or_none, is_missing, text_in
from bertkit.tasks.reading.tables import columns_to_search, find_column, names_of, open_table
from bertkit.tasks.rerank.task import POSITIVE, RerankExample, RerankTask

_NEGATIVE = re.compile(r"negatives?|negative_\d+")
#: A document and its label; None where a test file hides it.
Graded = tuple[str, float | None]


def read_rerank(task: RerankTask, path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[RerankExample]:
    """The queries of one file with all of their documents; labels may be absent from test alone.

    Raises:
        DataError: a missing column, no rows, a row without a query, document or label, or with a document that its
            query has already: each with file, line, what was found, what was expected.
    """
    bad = BadRows(on_error, gather=True)
    table = open_table(path, task.columns, bad)
    columns = task.columns
    query = find_column(path, table.columns, columns.text, "query", "name it so, or choose one (finetune: --text)")
    others = [name for name in table.columns if name != query]
    document = find_column(
        path, others, columns.text_pair, "document", "name it so, or choose one (finetune: --text-pair)"
    )
    there = [name for name in columns_to_search(table, columns.label) if name not in (query, document)]
    advice = f"choose one with --label; a document that is relevant in every row belongs in a column {POSITIVE!r}"
    label = None
    if document != POSITIVE and (split != "test" or any(name in there for name in columns.label)):
        label = find_column(path, there if split == "test" else others, columns.label, "label", advice)
    negatives = [name for name in others if document == POSITIVE and _NEGATIVE.fullmatch(name)]
    found: dict[str, dict[str, tuple[float | None, int]]] = {}
    for line, values in table.rows([query, document, *([label] if label else []), *negatives]):
        try:
            asked = text_in(f"column {query!r}", values[0])
            own = found.get(asked, {})
            row = list(_graded(document, values[1], label, values[2] if label else 1, split))
            row += [pair for name, cell in zip(negatives, values[2:], strict=True) for pair in _graded_none(name, cell)]
            _refuse_repeated(row, own)
        except RowError as fault:
            bad.report(path, line, fault.kind, str(fault))
            continue
        found.setdefault(asked, {}).update({text: (gain, line) for text, gain in row})
    bad.finish(path, len(found), f"{path} has the columns {names_of(table.columns)} but no rows")
    examples = [_example(query, documents, str(path)) for query, documents in found.items()]
    if split == "test":
        all_or_none(examples, [example.gains is not None for example in examples])
    return Examples(examples, path, split, bad.skipped)


def _example(query: str, documents: dict[str, tuple[float | None, int]], source: str) -> RerankExample:
    gains = [gain for gain, _ in documents.values() if gain is not None]
    known = tuple(gains) if len(gains) == len(documents) else None
    return RerankExample(query, tuple(documents), known, min(line for _, line in documents.values()), source)


def _graded(column: str, cell: object, label_column: str | None, label: object, split: Split) -> Iterator[Graded]:
    """The documents of a cell, one or a list, with their labels, as many."""
    documents = _listed(column, cell)
    labels = label if isinstance(label, list) else [label] * (1 if label_column else len(documents))
    if len(labels) != len(documents) or (label_column and isinstance(label, list) != isinstance(cell, list)):
        got = f"{len(documents)} documents in column {column!r}, but {len(labels)} labels in column {label_column!r}"
        raise RowError("number of labels", f"{got}; expected one for each")
    for text, value in zip(documents, labels, strict=True):
        yield text, _gain(label_column or column, value, split)


def _graded_none(column: str, cell: object) -> Iterator[Graded]:
    return ((text, 0.0) for text in ([] if cell is None else _listed(column, cell)))


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


def _refuse_repeated(row: Sequence[Graded], own: dict[str, tuple[float | None, int]]) -> None:
    seen: set[str] = set()
    for text, _ in row:
        if text in seen or text in own:
            place = f"in line {own[text][1]} already" if text in own else "in this row twice"
            raise RowError("repeated document", f"the query has the document {text!r:.40} {place}; one label is enough")
        seen.add(text)
