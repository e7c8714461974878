"""A linear head by logistic regression: exact, in milliseconds, where gradient steps on a few rows are neither."""

from __future__ import annotations

import numpy as np
import torch

from bertkit.metrics.calibration import log_loss
from bertkit.ragged import Floats, Ints
from bertkit.training.finetuning.frozen_encoder import FrozenHead

#: Inverse strengths of the penalty that are compared, for vectors of mean length 1; of equally good ones the first.
STRENGTHS = (10.0, 1.0, 100.0, 0.1)
#: Logit of a label without training rows, below all others.
NEVER = -30.0


def fit_linear_head(head: FrozenHead, features_ND: Floats, labels_N: Ints, strength: float) -> float:
    """Give the classifier of ``head`` the weights of a logistic regression; returns its loss on the rows (nats)."""
    classifier = head.classifier
    assert isinstance(classifier, torch.nn.Linear)
    weights_CD, bias_C = logistic(features_ND, labels_N, strength, num_labels=classifier.out_features)
    with torch.no_grad():
        classifier.weight.copy_(torch.from_numpy(weights_CD))
        classifier.bias.copy_(torch.from_numpy(bias_C))
    return log_loss(features_ND @ weights_CD.T + bias_C, labels_N)


def read_by(head: FrozenHead, vectors_ND: Floats) -> Floats:
    """What the classifier reads of the vectors: the same, or what the head's own layer makes of them."""
    head.eval()
    with torch.inference_mode():
        given = torch.from_numpy(vectors_ND).to(next(head.parameters()).device)
        found: Floats = head.read(given).float().cpu().numpy()
    return found


def choose_strength(features_ND: Floats, labels_N: Ints, folds_N: Ints) -> float:
    """The strength with the lowest loss when each part of the rows is predicted by a head that the others made."""
    num_labels = int(labels_N.max()) + 1
    losses = []
    for strength in STRENGTHS:
        total = 0.0
        for fold in np.unique(folds_N):
            inside, outside = folds_N != fold, folds_N == fold
            if len(np.unique(labels_N[inside])) < 2:
                continue
            weights_CD, bias_C = logistic(features_ND[inside], labels_N[inside], strength, num_labels=num_labels)
            total += log_loss(features_ND[outside] @ weights_CD.T + bias_C, labels_N[outside]) * int(outside.sum())
        losses.append(total)
    return STRENGTHS[int(np.argmin(losses))]


def logistic(features_ND: Floats, labels_N: Ints, strength: float, *, num_labels: int) -> tuple[Floats, Floats]:
    """Weights ``(C, D)`` and biases ``(C,)`` of a logistic regression over labels 0 to C - 1.

    Class weights are balanced: under a strong penalty a label with fewer rows than others would hardly ever be
    predicted. A label that no row has gets no weights and a bias far below the others.
    """
    from sklearn.linear_model import LogisticRegression

    scale = float(np.linalg.norm(features_ND, axis=1).mean()) or 1.0
    model = LogisticRegression(C=strength, max_iter=1000, class_weight="balanced")
    model.fit(features_ND.astype(np.float64) / scale, labels_N)
    slopes, offsets = np.asarray(model.coef_) / scale, np.asarray(model.intercept_)
    if len(model.classes_) == 2:  # one row of weights, for the second label
        slopes, offsets = np.concatenate([-slopes, slopes]) / 2, np.concatenate([-offsets, offsets]) / 2
    weights_CD = np.zeros((num_labels, features_ND.shape[1]), np.float32)
    bias_C = np.full(num_labels, NEVER, np.float32)
    weights_CD[model.classes_], bias_C[model.classes_] = slopes, offsets
    return weights_CD, bias_C
