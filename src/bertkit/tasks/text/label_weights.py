"""How rare the labels of the training rows are: weights for the loss, and the loss of an answer without the text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertkit.ragged import GroupSet, Ragged
from bertkit.tasks.reading_settings import ReadingSettings
from bertkit.tasks.text.task import TextTask


def class_weights(task: TextTask, train: Ragged | GroupSet, settings: ReadingSettings) -> Tensor | None:
    """``n / (C * count)`` for each label under ``class_weights="balanced"`` (scikit-learn's rule), else None.

    Of several labels a row it is how many rows do not have the label for each that has it. A label that no training row
    has, or of several that all have, gets 1: the rule would give it an infinite weight, or none.
    """
    if settings.class_weights == "none" or task.is_regression:
        return None
    if task.multi_label:
        have = np.asarray(train.labels).sum(axis=0)
        lack = len(train) - have
        return torch.tensor(np.where(have * lack > 0, lack / np.maximum(have, 1), 1.0), dtype=torch.float32)
    counts = np.bincount(np.asarray(train.labels), minlength=task.num_labels)
    weights = len(train) / (np.count_nonzero(counts) * np.maximum(counts, 1))
    return torch.tensor(np.where(counts > 0, weights, 1.0), dtype=torch.float32)


def label_entropy(task: TextTask, train: Ragged | GroupSet, weights: Tensor | None = None) -> float:
    """Loss of the best answer that ignores the text: entropy of the weighted label frequencies in nats, or variance."""
    labels = np.asarray(train.labels)
    if isinstance(train, GroupSet):  # the loss counts windows
        labels = np.repeat(labels, train.sizes, axis=0)
    if task.multi_label:
        return _entropy_of_each(labels, weights)
    if task.is_regression:
        return float(labels.astype(np.float64).var())
    mass = np.bincount(labels, minlength=task.num_labels).astype(np.float64)
    if weights is not None:
        mass *= weights.numpy()
    shares = mass[mass > 0] / mass.sum()
    return float(-(shares * np.log(shares)).sum())


def _entropy_of_each(labels: npt.NDArray[Any], weights: Tensor | None) -> float:
    """Mean over labels of the best constant answer's binary cross-entropy; a label that is there weighs its weight."""
    there = labels.astype(np.float64).mean(axis=0)
    weighted = there if weights is None else there * weights.numpy()
    share = np.clip(weighted / np.maximum(weighted + 1 - there, 1e-12), 1e-12, 1 - 1e-12)
    return float(-(weighted * np.log(share) + (1 - there) * np.log(1 - share)).mean())
