"""The scored texts of a run, row by row; see :class:`bertkit.tasks.row_scores.RowScores`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bertkit.metrics.calibration import log_losses
from bertkit.ragged import Floats, Labels
from bertkit.tasks.row_scores import RowScores
from bertkit.tasks.text.decoding import rows_at_once
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


def row_losses(task: TextTask, logits: Floats, labels: Labels) -> npt.NDArray[np.float64]:
    """Loss of each row ``(n,)``: :func:`log_losses`, or the squared error of a score."""
    if task.is_regression:
        return np.asarray((logits[:, 0].astype(np.float64) - labels) ** 2, dtype=np.float64)
    size = rows_at_once(logits)
    starts = range(0, max(1, len(logits)), size)
    return np.concatenate([log_losses(logits[at : at + size], labels[at : at + size]) for at in starts])


def _number(task: TextTask, label: Any) -> int | float | tuple[int, ...]:
    if task.labels is None:
        return float(label)
    if isinstance(label, tuple):
        return tuple(task.labels.index(name) for name in label)
    return task.labels.index(label)


def _shown(label: object) -> str:
    return ", ".join(label) if isinstance(label, tuple) else str(label)
