"""The scored texts of a run, row by row; see :class:`bertkit.tasks.row_scores.RowScores`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bertkit.tasks.row_scores import RowScores
from bertkit.tasks.text.task import TextTask, score


def text_row_scores(task: TextTask, rows: Sequence[Mapping[str, Any]]) -> RowScores:
    """Of the lines of a ``predictions-*.jsonl`` with ``gold`` labels or scores."""
    only, main = replace(task, metrics=(task.main_metric,)), task.main_metric
    gold, predicted = ([row[name] for row in rows] for name in ("gold", "predicted"))
    if task.multi_label:
        gold, predicted = ([tuple(sorted(labels)) for labels in side] for side in (gold, predicted))
    arrays = [task.label_array([_number(task, label) for label in side]) for side in (predicted, gold)]
    return RowScores(
        keys=[(row["text"], row.get("text_pair"), label) for row, label in zip(rows, gold, strict=True)],
        shown=[" | ".join(filter(None, (row["text"], row.get("text_pair")))) for row in rows],
        gold=[_shown(label) for label in gold],
        predicted=[_shown(label) for label in predicted],
        right=None if task.is_regression else np.array([a == b for a, b in zip(gold, predicted, strict=True)]),
        metric=lambda some: score(only, arrays[0][some], arrays[1][some])[main],
    )


def _number(task: TextTask, label: Any) -> int | float | tuple[int, ...]:
    if task.labels is None:
        return float(label)
    if isinstance(label, tuple):
        return tuple(task.labels.index(name) for name in label)
    return task.labels.index(label)


def _shown(label: object) -> str:
    return ", ".join(label) if isinstance(label, tuple) else str(label)
