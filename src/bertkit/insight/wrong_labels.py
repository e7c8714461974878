"""Confident learning: labels that models which have not seen them find wrong (Northcutt et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertkit.errors import DataError, counted
from bertkit.inference.pipelines import pipeline
from bertkit.ragged import Floats


class Suspect(NamedTuple):
    """The number of a row, the more probable label, its probability, and that of the given label."""

    number: int
    label: str
    probability: float
    own: float


def likely_wrong(
    encoder: str | Path,
    texts: Sequence[str | tuple[str, str]],
    labels: Sequence[str],
    folds: int,
    *,
    seed: int = 0,
    device: Any = None,
) -> list[Suspect]:
    """The texts or pairs whose label is likely wrong, the clearest first, by cross-validation on frozen vectors."""
    names, given = np.unique(labels, return_inverse=True)
    if len(names) < 2 or np.bincount(given).min() < folds:
        raise DataError(
            f"labels are checked in {folds} parts, so at least 2 labels with {counted(folds, 'row')} each are needed; "
            f"the rarest of {counted(len(names), 'label')} has {np.bincount(given).min()}"
        )
    encode = pipeline("feature-extraction", model=encoder, device=device)
    vectors = np.stack(encode(list(texts), pooling="model", truncation=True))
    probabilities = held_out_probabilities(vectors, given, folds, seed)
    return [Suspect(n, str(names[other]), p, own) for n, other, p, own in suspects(probabilities, given)]


def held_out_probabilities(vectors: Floats, given: npt.NDArray[np.intp], folds: int, seed: int) -> Floats:
    """Probabilities ``(N, L)`` of each row by a logistic regression that was fitted on the other parts."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.05, max_iter=500))
    parts = StratifiedKFold(folds, shuffle=True, random_state=seed)
    found: Floats = cross_val_predict(model, vectors, given, cv=parts, method="predict_proba")
    return found


def suspects(probabilities: Floats, given: npt.NDArray[np.intp]) -> list[tuple[int, int, float, float]]:
    """Row, other label, its probability and that of the given label; the clearest first."""
    rows = np.arange(len(given))
    own = probabilities[rows, given]
    thresholds = np.array([own[given == label].mean() for label in range(probabilities.shape[1])])
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    other = confident.argmax(axis=1)
    likely = np.flatnonzero((confident[rows, other] > own) & (other != given))
    order = likely[np.argsort(-(probabilities[likely, other[likely]] - own[likely]), kind="stable")]
    return [(int(n), int(other[n]), float(probabilities[n, other[n]]), float(own[n])) for n in order]
