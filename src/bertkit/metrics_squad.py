"""The SQuAD metrics under their documented name; they live in :mod:`bertkit.tasks.spans.metrics`."""

from bertkit.tasks.spans.metrics import (
    AnswerPoints,
    answer_points,
    best_threshold,
    normalize_answer,
    squad2_metrics,
    squad_metrics,
    with_threshold,
)

__all__ = [
    "AnswerPoints",
    "answer_points",
    "best_threshold",
    "normalize_answer",
    "squad2_metrics",
    "squad_metrics",
    "with_threshold",
]
