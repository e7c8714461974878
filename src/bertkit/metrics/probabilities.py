"""From logits to answers, in numpy; shared by evaluation and serving, so that both agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError

AnyFloats = npt.NDArray[np.floating]
#: The threshold of a label that has none of its own.
USUAL = 0.5


def softmax(logits: npt.ArrayLike, axis: int = -1) -> AnyFloats:
    """Probabilities that sum to 1 along ``axis``, without overflow; float64 stays, everything else becomes float32."""
    x = _floats(logits)
    exponentials = np.exp(x - x.max(axis=axis, keepdims=True))
    result: AnyFloats = exponentials / exponentials.sum(axis=axis, keepdims=True)
    return result


def sigmoid(logits: npt.ArrayLike) -> AnyFloats:
    """``1 / (1 + exp(-x))`` elementwise, without overflow on either side."""
    x = _floats(logits)
    small = np.exp(-np.abs(x))
    result: AnyFloats = np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype, copy=False)
    return result


def entropy(counts: npt.NDArray[np.number]) -> float:
    """Entropy in nats of the shares that non-negative counts make up; 0 without any count."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def frequency_logits(there: AnyFloats, absent: AnyFloats | None = None) -> AnyFloats:
    """Logits ``(C,)`` by label counts, at least half a row each; of a sigmoid with ``absent``, else of a softmax."""
    if absent is not None:
        result: AnyFloats = np.log(np.maximum(there, 0.5) / np.maximum(absent, 0.5))
        return result
    logits = np.log(np.maximum(there, 0.5))
    centred: AnyFloats = logits - logits.mean()
    return centred


def top_k(scores: npt.ArrayLike, k: int) -> tuple[npt.NDArray[np.int64], AnyFloats]:
    """Indices and values of the ``min(k, C)`` highest scores of ``(..., C)``, highest first; ties by index."""
    x = _floats(scores)
    if k < 1:
        raise InputError(f"top_k must be at least 1, got {k}")
    size = x.shape[-1]
    if 4 * k >= size:
        indices = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    else:
        # A vocabulary has 30,000 entries: sort only those that reach the k-th score, ties included by a second look.
        indices = np.sort(np.argpartition(-x, k - 1, axis=-1)[..., :k], axis=-1)
        kth = np.take_along_axis(x, indices, axis=-1).min(axis=-1, keepdims=True)
        if ((x == kth).sum(axis=-1) > 1).any():
            indices = np.argsort(-x, axis=-1, kind="stable")[..., :k]
        else:
            order = np.argsort(-np.take_along_axis(x, indices, axis=-1), axis=-1, kind="stable")
            indices = np.take_along_axis(indices, order, axis=-1)
    return indices.astype(np.int64, copy=False), np.take_along_axis(x, indices, axis=-1)


def predictions_of(logits: npt.ArrayLike, problem_type: str | None = None) -> npt.NDArray[np.number]:
    """Labels ``(B,)`` of logits ``(B, C)``, scores ``(B,)`` of regression, 0 and 1 ``(B, C)`` of several labels."""
    x = _floats(logits)
    if problem_type == "regression" or (problem_type is None and x.shape[-1] == 1):
        return x[:, 0]
    if problem_type == "multi_label_classification":
        return (x >= 0).astype(np.int64)
    best: npt.NDArray[np.int64] = x.argmax(axis=-1).astype(np.int64, copy=False)
    return best


def given_labels(
    shares_BC: AnyFloats, thresholds: Sequence[float] | None = None, *, several: bool
) -> npt.NDArray[np.int64]:
    """The labels that a classifier gives by its probabilities: numbers ``(B,)``; of ``several`` 1 and 0, ``(B, C)``.

    thresholds: from which probability on a label is given, one for each of several; of two labels that exclude each
        other the one of the second. None: half of the probability, or the likeliest label.
    """
    if several:
        return (shares_BC >= np.asarray(USUAL if thresholds is None else thresholds)).astype(np.int64)
    if thresholds is None:
        best: npt.NDArray[np.int64] = shares_BC.argmax(axis=1).astype(np.int64, copy=False)
        return best
    return (shares_BC[:, 1] >= thresholds[-1]).astype(np.int64)


def _floats(values: npt.ArrayLike) -> AnyFloats:
    x = np.asarray(values)
    return x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
