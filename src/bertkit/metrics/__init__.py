"""Scores of predictions and of rankings, confidence intervals, calibration, tags, ROUGE, BM25.

They need numpy only, but for :func:`~bertkit.metrics.calibration.fit_temperature`, which needs scipy.

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
