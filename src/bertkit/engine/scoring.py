"""Logits of a whole data set, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bertkit.batch import Batch
from bertkit.metrics.calibration import log_losses
from bertkit.metrics.probabilities import predictions_of
from bertkit.model.losses import class_loss
from bertkit.model.models import BertForSequenceClassification
from bertkit.system.console import progress
from bertkit.tasks import TextTask, score
from bertkit.tasks.text.features import FeatureSet, Ints, collate, token_budget_batches

Floats = npt.NDArray[np.float32]

#: Tokens in one forward pass without gradients: large enough to keep the cores busy, small enough for their caches.
SCORING_TOKENS = 4096
#: Sets that are drawn for a bootstrap interval; fewer of many examples, so that all draws have at most DRAWN numbers.
NUM_DRAWS, FEWEST_DRAWS, DRAWN = 1000, 100, 10_000_000


def sorted_batches(lengths: Ints, max_tokens: int = SCORING_TOKENS) -> list[list[int]]:
    """All rows in batches of similar length, the longest first."""
    budget = max(max_tokens, int(lengths.max()))
    return token_budget_batches(lengths, max_tokens=budget, window=len(lengths))


def forward_rows(
    model: Any,
    lengths: Ints,
    collate: Callable[[Sequence[int]], Batch],
    forward: Callable[[Any], Any],
    *,
    check: Callable[[], None] = lambda: None,
    label: str = "scoring",
) -> Iterator[tuple[list[int], Any]]:
    """Row numbers and ``forward`` of their batch, for all rows by token-budget batches, without gradients, in fp32.

    After training in half precision too: what is scored is the model that is saved, as everything else will run it.

    Args:
        model: put into eval mode, and left in it.
        lengths: tokens of each row.
        collate: row numbers to a batch.
        forward: a batch on the model's device to whatever is wanted of it.
        check: called before each batch; may raise to stop.
        label: what the progress bar says.
    """
    model.prepack()
    for rows in progress(sorted_batches(lengths), label=label, unit="batches"):
        check()
        with torch.inference_mode(), torch.autocast(model.device.type, enabled=False):
            found = forward(collate(rows).to(model.device))
        yield rows, found


def token_outputs(
    model: Any,
    lengths: Ints,
    collate: Callable[[Sequence[int]], Batch],
    forward: Callable[[Any], Any],
    *,
    check: Callable[[], None] = lambda: None,
    label: str = "scoring",
) -> Floats:
    """``forward`` of every token, rows end to end in their order: float32 ``(T, C)``.

    Takes what :func:`forward_rows` takes. ``forward`` gives ``(tokens of the batch, C)``; row r owns
    ``cumsum(lengths)[r - 1] : cumsum(lengths)[r]``.
    """
    ends = np.cumsum(lengths)
    out: Floats | None = None
    for rows, found in forward_rows(model, lengths, collate, forward, check=check, label=label):
        values = found.float().cpu().numpy()
        if out is None:
            out = np.empty((int(ends[-1]), values.shape[1]), dtype=np.float32)
        start = 0
        for row in rows:
            size = int(lengths[row])
            out[ends[row] - size : ends[row]] = values[start : start + size]
            start += size
    assert out is not None, "there is always a row"
    return out


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
    out: Floats | None = None

    def batch_of(rows: Sequence[int]) -> Batch:
        return collate(features, rows)

    for rows, found in forward_rows(model, features.lengths, batch_of, forward, check=check, label=label):
        values = found.float().cpu().numpy()
        if out is None:
            out = np.empty((len(features), values.shape[1]), dtype=np.float32)
        out[rows] = values
    assert out is not None, "a feature set is never empty"
    return out


def row_losses(task: TextTask, logits: Floats, labels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Loss of each row ``(n,)``: minus the logarithm of the right label's probability, its mean over several labels, or
    the squared error.
    """
    if task.is_regression:
        return np.asarray((logits[:, 0].astype(np.float64) - labels) ** 2, dtype=np.float64)
    return log_losses(logits, labels)


def score_logits(
    task: TextTask, logits: Floats, labels: npt.NDArray[Any], predicted: npt.NDArray[Any] | None = None
) -> dict[str, float]:
    """Every metric of the task, and ``loss``, the mean loss without class weights.

    Args:
        task: names the metrics.
        logits: ``(n, C)``.
        labels: right ones, as :meth:`bertkit.tasks.TextTask.label_array` gives them.
        predicted: what is scored; None means the likeliest labels.
    """
    targets = torch.from_numpy(labels.astype(np.int64 if task.kind == "classification" else np.float32, copy=False))
    term = class_loss(torch.from_numpy(logits), targets, task.problem_type)
    scores = score(task, predictions_of(logits, task.problem_type) if predicted is None else predicted, labels)
    return {**scores, "loss": float(term.total) / term.num_targets}


def bootstrap_draws(num_examples: int, num_draws: int | None = None) -> Ints:
    """Numbers of examples drawn with replacement, always the same ones, so that seeds and systems can be paired.

    Args:
        num_examples: n.
        num_draws: K; None means 1,000, and fewer from 10,000 examples on.

    Returns:
        int64 ``(K, n)``, a function of its arguments.
    """
    if num_draws is None:
        num_draws = min(NUM_DRAWS, max(FEWEST_DRAWS, DRAWN // num_examples))
    generator = np.random.Generator(np.random.PCG64([num_examples, 0xB0]))
    return generator.integers(num_examples, size=(num_draws, num_examples), dtype=np.int64)
