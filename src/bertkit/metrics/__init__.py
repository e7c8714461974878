"""Scores of predictions and of rankings, confidence intervals, calibration, tags, ROUGE, BM25: numpy only.

The metrics of GLUE are importable from here; ``multilabel``, ``calibration``, ``tags``, ``rouge``, ``ranking`` and
``bm25`` are modules of their own.
"""

from bertkit.metrics.scores import (
    accuracy,
    confusion_matrix,
    f1,
    macro_f1,
    matthews,
    pearson,
    ranks,
    spearman,
)

__all__ = ["accuracy", "confusion_matrix", "f1", "macro_f1", "matthews", "pearson", "ranks", "spearman"]
