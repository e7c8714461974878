"""Rows of texts that are compared, from what is in memory: data sets, frames, lists, loaders of InputExamples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from bertkit.errors import DataError, shorten
from bertkit.habits.sentences.input_example import InputExample
from bertkit.tasks.embeddings.task import PAIRS, SCORED_PAIRS, TRIPLETS, Comparison, EmbeddingExample, EmbeddingTask
from bertkit.tasks.examples import Examples
from bertkit.tasks.reading.bad_rows import RowError, text_in
from bertkit.tasks.reading.given_rows import Given, given_data

#: Columns that hold a score or a label, as sentence-transformers has it; the others hold texts, in their order.
LABELS = ("label", "labels", "score", "scores")
TASKS: Mapping[Comparison, EmbeddingTask] = {"pairs": PAIRS, "triplets": TRIPLETS, "scores": SCORED_PAIRS}


def columns_in(rows: Any) -> Mapping[str, Sequence[Any]]:
    """Columns by name of rows of any form of :mod:`bertkit.tasks.reading.given_rows`, or of InputExamples."""
    if isinstance(rows, Mapping) and any(hasattr(each, "column_names") for each in rows.values()):
        raise DataError(
            f"several data sets, {shorten(rows)}: train on one at a time, or join them with "
            "datasets.concatenate_datasets"
        )
    rows = getattr(rows, "dataset", rows)  # of a DataLoader its data
    if isinstance(rows, Sequence) and rows and not isinstance(rows[0], Mapping):
        return _of_examples(cast("Sequence[InputExample]", rows))
    found = given_data(rows, None, {})
    if not isinstance(found, Given):
        raise DataError(
            f"rows are expected, got {rows!r:.80}; files are trained on by bertkit.finetune(data={rows!r:.80})"
        )
    return dict(found.columns)


def _of_examples(examples: Sequence[InputExample]) -> dict[str, Sequence[Any]]:
    for number, row in enumerate(examples):
        if not hasattr(row, "texts"):
            raise DataError(
                f"row {number} is a {type(row).__name__}; rows are dicts of columns, or InputExample(texts=[...])"
            )
        if len(row.texts) != len(examples[0].texts):
            raise DataError(f"row {number} has {len(row.texts)} texts, row 0 has {len(examples[0].texts)}")
    texts = {f"text{place}": [row.texts[place] for row in examples] for place in range(len(examples[0].texts))}
    return {**texts, "label": [row.label for row in examples]}


def compared_rows(rows: Any, compares: Comparison) -> Examples[EmbeddingExample]:
    """Examples of the task that a loss is for; DataError, with the row from 0, where they do not fit it."""
    columns = columns_in(rows)
    label = next((name for name in columns if name in LABELS), None)
    texts = [name for name in columns if name not in LABELS]
    fewest, most = (3, 3) if compares == "triplets" else (2, 2 if compares == "scores" else 1_000)
    if not fewest <= len(texts) <= most or (compares == "scores" and label is None):
        wanted = {
            "pairs": "two columns of texts that belong together, perhaps more of negatives",
            "triplets": "three columns: anchor, positive, negative",
            "scores": f"two columns of texts, and one called {' or '.join(map(repr, LABELS))}",
        }
        raise DataError(f"this loss reads {wanted[compares]}; the columns are {shorten(columns)}")
    scores = columns[label] if compares == "scores" and label is not None else None
    return Examples(_examples(columns, texts, scores), split="train")


def _examples(
    columns: Mapping[str, Sequence[Any]], texts: Sequence[str], scores: Sequence[Any] | None
) -> Iterable[EmbeddingExample]:
    for number, values in enumerate(zip(*(columns[name] for name in texts), strict=True)):
        try:
            found = tuple(text_in(f"column {name!r}", value) for name, value in zip(texts, values, strict=True))
            score = None if scores is None else float(scores[number])
        except (RowError, TypeError, ValueError) as fault:
            raise DataError(f"row {number} (counted from 0): {fault}") from None
        yield EmbeddingExample(found, score, number, "the training rows")
