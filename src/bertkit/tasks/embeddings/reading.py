"""From a table of texts that are compared to examples."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from bertkit.errors import DataError, shorten
from bertkit.tasks.embeddings.task import EmbeddingExample, EmbeddingTask
from bertkit.tasks.examples import Examples, Split
from bertkit.tasks.hold_out import plain_text
from bertkit.tasks.reading.bad_rows import BadRows, OnError, RowError, all_or_none, is_missing, text_in
from bertkit.tasks.reading.tables import Table, column_of, columns_to_search, find_column, names_of, open_table

_NEGATIVE = re.compile(r"(hard_)?neg(ative)?s?(_?\d+)?", re.IGNORECASE)


def read_embeddings(
    task: EmbeddingTask, path: Path, split: Split, *, on_error: OnError = "raise"
) -> Examples[EmbeddingExample]:
    """The examples of one file; scores may be absent from test alone."""
    bad = BadRows(on_error, gather=True)
    table = open_table(path, task.columns, bad)
    texts, negatives, score = _columns_of(task, path, table, split)
    rows = []
    for line, values in table.rows([*texts, *negatives, *score]):
        try:
            found = [text_in(f"column {name!r}", value) for name, value in zip(texts, values, strict=False)]
            for name, value in zip(negatives, values[len(texts) :], strict=False):
                found += _negatives_in(name, value, found[1])
            if task.compares == "triplets" and len(found) != 3:
                raise RowError("no triplet", f"column {negatives[0]!r} holds {len(found) - 2} negatives, expected one")
            number = _score_in(score[0], values[-1], split) if score else None
        except RowError as fault:
            bad.report(path, line, fault.kind, str(fault))
            continue
        rows.append(EmbeddingExample(tuple(found), number, line, str(path)))
    bad.finish(path, len(rows), f"{path} has the columns {names_of(table.columns)} but no rows")
    if split == "test" and score:
        all_or_none(rows, [row.score is not None for row in rows], f"score in column {score[0]!r}")
    return Examples(rows, path, split, bad.skipped)


def columns_note(task: EmbeddingTask, path: Path) -> str:
    """Which columns of a file are read, in words."""
    texts, negatives, score = _columns_of(task, path, open_table(path, task.columns, BadRows("skip")), "test")
    first, second = map(repr, texts)
    more = f"; negatives {shorten(negatives, limit=12)}" if negatives else ""
    return f"columns: {first} and {second}{more}{f'; score {score[0]!r}' if score else ''}"


def _columns_of(task: EmbeddingTask, path: Path, table: Table, split: Split) -> tuple[list[str], list[str], list[str]]:
    layout = task.columns
    first = find_column(path, table.columns, layout.text, "text", "choose one with --text")
    name_it = "choose one with --text-pair"
    second = find_column(path, table.columns, layout.text_pair, "second text", name_it, taken=[first])
    if task.compares != "scores":
        return [first, second], _negative_columns(task, path, table.columns, [first, second]), []
    there = columns_to_search(table, layout.label) if split == "test" else table.columns
    if split == "test" and column_of(there, layout.label) is None:
        return [first, second], [], []
    return [first, second], [], [find_column(path, there, layout.label, "score", "choose one with --score")]


def _negative_columns(task: EmbeddingTask, path: Path, columns: Sequence[str], taken: Sequence[str]) -> list[str]:
    if task.negatives is not None:
        advice = "choose with --negative"
        return [find_column(path, columns, [name], "negative", advice, taken=taken) for name in task.negatives]
    found = [name for name in columns if _NEGATIVE.fullmatch(name) and name not in taken]
    if task.compares == "triplets" and len(found) != 1:
        raise DataError(
            f"{path}: a triplet has one column of negatives, found {found or 'none'}. The columns are "
            f"{names_of(columns)}; choose one with --negative, or use task pairs, where a row has any number of them"
        )
    return found


def _negatives_in(column: str, value: object, positive: str) -> list[str]:
    """The texts of a cell, which in JSON and Parquet may be a list."""
    cells = value if isinstance(value, list | tuple) else [value]
    texts = [text_in(f"column {column!r}", cell) for cell in cells]
    if plain_text(positive) in map(plain_text, texts):
        raise RowError("negative is positive", f"column {column!r} holds the positive, {positive!r:.60}, as a negative")
    return texts


def _score_in(column: str, value: object, split: Split) -> float | None:
    if is_missing(value):
        if split == "test":
            return None
        raise RowError("missing score", f"column {column!r} has no score ({value!r})")
    try:
        score = float(str(value))
    except ValueError:
        raise RowError("score is no number", f"column {column!r}: score {value!r:.60} is not a number") from None
    if not math.isfinite(score):
        raise RowError("score is not finite", f"column {column!r}: score {value!r:.60} is not a finite number")
    return score
