"""Which texts to label next: those that a model of the labels so far is unsure of, those unlike the labelled.

Letters of the array shapes: N texts, C labels, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bertkit.metrics.nearest import directions
from bertkit.ragged import Floats, Ints
from bertkit.tasks.text.baseline import INVERSE_PENALTY

Order = Literal["both", "uncertainty", "diversity", "file"]
#: With "both": of so many times the texts that are asked for, the most uncertain, the most diverse are taken.
UNSURE = 10
#: Parts of the labelled texts, each of which is predicted from the others, for the curve.
FOLDS = 5


class Guess(NamedTuple):
    """probabilities: ``(N, C)`` of the labels with these numbers ``(C,)``, by a linear model of the labelled texts."""

    labels: Ints
    probabilities: npt.NDArray[np.float64]


def guess_labels(vectors_ND: Floats, labelled: Mapping[int, int]) -> Guess | None:
    """What logistic regression on labelled texts (text to label) says of all; None as long as they have one label."""
    from sklearn.linear_model import LogisticRegression

    rows, labels = list(labelled), np.array(list(labelled.values()))
    if len(np.unique(labels)) < 2:
        return None
    model = LogisticRegression(C=INVERSE_PENALTY, max_iter=1000).fit(vectors_ND[rows], labels)
    return Guess(np.asarray(model.classes_), np.asarray(model.predict_proba(vectors_ND)))


def next_texts(
    vectors_ND: Floats,
    labelled: Mapping[int, int],
    *,
    order: Order = "both",
    count: int = 1,
    left_out: frozenset[int] = frozenset(),
    guess: Guess | None = None,
) -> list[int]:
    """Numbers of the texts to label next, the most useful first; the same arguments give the same texts.

    order: "uncertainty": the two likeliest labels are nearest to each other (Scheffer et al. 2001, "margin");
        "diversity": farthest from all that is labelled or was chosen before (Sener and Savarese 2018, the greedy
        k-center of section 4.1, by cosine); "both": the most diverse of the most uncertain; "file": as they come. As
        long as fewer than two labels were given, there is no uncertainty, and "diversity" is done.
    guess: what :func:`guess_labels` says of these labels, where it is known.
    """
    left = np.array([row for row in range(len(vectors_ND)) if row not in labelled and row not in left_out], np.int64)
    count = min(count, len(left))
    if order == "file" or not count:
        return [int(row) for row in left[:count]]
    if order != "diversity" and (guess := guess or guess_labels(vectors_ND, labelled)) is not None:
        likeliest = np.sort(guess.probabilities[left], axis=1)
        left = left[np.argsort(likeliest[:, -1] - likeliest[:, -2], kind="stable")]
        left = left[: UNSURE * count if order == "both" else count]
        if order == "uncertainty":
            return [int(row) for row in left]
    return _farthest(directions(vectors_ND), left, list(labelled), count)


def _farthest(vectors_ND: Floats, left: Ints, known: list[int], count: int) -> list[int]:
    """Of the texts ``left`` one after the other the one farthest from all known; the first may be the most ordinary."""
    candidates_MD = vectors_ND[left]
    if known:
        nearest_M = (candidates_MD @ vectors_ND[known].T).max(axis=1)
    else:
        nearest_M = -(candidates_MD @ candidates_MD.mean(axis=0))
    chosen: list[int] = []
    for turn in range(count):
        place = int(np.argmin(nearest_M))
        chosen.append(int(left[place]))
        similar_M = candidates_MD @ candidates_MD[place]
        nearest_M = similar_M if not known and turn == 0 else np.maximum(nearest_M, similar_M)
        nearest_M[place] = np.inf
    return chosen


def held_out_accuracy(vectors_ND: Floats, labelled: Mapping[int, int]) -> float | None:
    """Share of labelled texts whose label a linear model of the others finds: a point of a learning curve.

    In at most :data:`FOLDS` parts, by label and by the order of labelling. The texts were chosen because they are
    hard, so that others may be easier. None as long as no two labels have two texts each.
    """
    rows, labels = np.array(list(labelled)), np.array(list(labelled.values()))
    counts = np.unique(labels, return_counts=True)[1] if len(labels) else np.zeros(0, np.int64)
    if (counts > 1).sum() < 2:
        return None
    folds = np.empty(len(rows), np.int64)
    folds[np.argsort(labels, kind="stable")] = np.arange(len(rows)) % min(FOLDS, int(counts.max()))
    right = 0
    for fold in np.unique(folds):
        inside = {int(row): int(label) for row, label in zip(rows[folds != fold], labels[folds != fold], strict=True)}
        guess = guess_labels(vectors_ND, inside)
        if guess is not None:
            outside = folds == fold
            found = guess.labels[guess.probabilities[rows[outside]].argmax(axis=1)]
            right += int((found == labels[outside]).sum())
    return right / len(rows)
