"""Logits of a whole data set, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bertkit.console import progress
from bertkit.features import FeatureSet, collate, token_budget_batches
from bertkit.model.bert import BertForSequenceClassification
from bertkit.model.losses import class_loss
from bertkit.postprocess import predictions_of
from bertkit.tasks import TextTask, score

Floats = npt.NDArray[np.float32]

#: Tokens in one forward pass without gradients: large enough to keep the cores busy, small enough for their caches.
SCORING_TOKENS = 4096


def sorted_batches(features: FeatureSet, max_tokens: int = SCORING_TOKENS) -> list[list[int]]:
    """All rows in batches of similar length, the longest first."""
    budget = max(max_tokens, int(features.lengths.max()))
    return token_budget_batches(features.lengths, max_tokens=budget, window=len(features))


def predict_logits(
    model: BertForSequenceClassification,
    features: FeatureSet,
    *,
    check: Callable[[], None] = lambda: None,
    label: str = "scoring",
) -> Floats:
    """Logits of every row, in the rows' order: float32 ``(n, C)``.

    Args:
        model: put into eval mode, and left in it.
        features: the rows.
        check: called before each batch; may raise to stop.
        label: what the progress bar says.
    """
    return encode_rows(model, features, lambda batch: model.forward_packed(batch).logits, check=check, label=label)


def encode_rows(
    model: BertForSequenceClassification,
    features: FeatureSet,
    forward: Callable[[Any], Any],
    *,
    check: Callable[[], None] = lambda: None,
    label: str = "encoding",
) -> Floats:
    """``forward`` of every row by token-budget batches, gathered in the rows' order: float32 ``(n, width)``."""
    model.prepack()
    out: Floats | None = None
    with torch.inference_mode():
        for rows in progress(sorted_batches(features), label=label, unit="batches"):
            check()
            values = forward(collate(features, rows).to(model.device)).float().cpu().numpy()
            if out is None:
                out = np.empty((len(features), values.shape[1]), dtype=np.float32)
            out[rows] = values
    assert out is not None, "a feature set is never empty"
    return out


def score_logits(task: TextTask, logits: Floats, labels: npt.NDArray[Any]) -> dict[str, float]:
    """Every metric of the task, and ``loss``, the mean loss without class weights.

    Args:
        task: names the metrics.
        logits: ``(n, C)``.
        labels: ``(n,)`` right label numbers or scores.
    """
    targets = torch.from_numpy(labels.astype(np.float32 if task.is_regression else np.int64, copy=False))
    term = class_loss(torch.from_numpy(logits), targets, task.problem_type)
    scores = score(task, predictions_of(logits, task.problem_type), labels)
    return {**scores, "loss": float(term.total) / term.num_targets}
