"""Precision, recall and F1 of each class (or type of entity), and their means; equal to scikit-learn's and seqeval's.

A ratio whose denominator is 0 is 0.0: nothing predicted has precision 0, nothing to find recall 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError
from bertkit.metrics.scores import as_values

#: Classes of a table on a terminal, and on a page; of more, those with the lowest F1.
MOST_LINES, MOST_ROWS = 20, 100
_SCORES = ("precision", "recall", "f1")


class Found(NamedTuple):
    """How many were right, predicted, and there to be found; and the three scores that follow."""

    right: int
    predicted: int
    support: int

    @property
    def precision(self) -> float:
        """Share of the predicted ones that are right."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of those there that were found."""
        return self.right / self.support if self.support else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of both."""
        precision, recall = self.precision, self.recall
        return 2 * precision * recall / (precision + recall) if precision + recall else 0.0

    def to_dict(self) -> dict[str, float]:
        """The three scores, and ``support``."""
        return {"precision": self.precision, "recall": self.recall, "f1": self.f1, "support": self.support}


@dataclass(frozen=True, slots=True)
class ClassScores:
    """Scores of a data set by class, of every class that occurs on either side; and over all classes.

    noun, unit: what a class and what is counted is called, in tables.
    """

    by_class: Mapping[str, Found]
    noun: str = "class"
    unit: str = "rows"

    @property
    def micro(self) -> Found:
        """All in one count. Of entities it is the score that is reported for CoNLL-2003 and its like."""
        found = self.by_class.values()
        return Found(sum(f.right for f in found), sum(f.predicted for f in found), sum(f.support for f in found))

    @property
    def macro(self) -> dict[str, float]:
        """Mean precision, recall and F1 of the classes, each with the same weight; 0.0 without any class."""
        return self._means({name: 1 for name in self.by_class})

    @property
    def weighted(self) -> dict[str, float]:
        """The means with the weight of their support; 0.0 where there is nothing to be found."""
        return self._means({name: found.support for name, found in self.by_class.items()})

    def _means(self, weights: Mapping[str, int]) -> dict[str, float]:
        total = sum(weights.values())
        return {
            score: sum(getattr(found, score) * weights[name] for name, found in self.by_class.items()) / total
            if total
            else 0.0
            for score in _SCORES
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: ``by_class`` and ``micro`` (see :meth:`Found.to_dict`), ``macro`` and ``weighted``."""
        return {
            "by_class": {name: found.to_dict() for name, found in self.by_class.items()},
            "micro": self.micro.to_dict(),
            "macro": self.macro,
            "weighted": self.weighted,
        }

    def render(self) -> str:
        """A table, one line a class, the means in the last lines; of many classes those with the lowest F1."""
        return class_table(self.to_dict(), self.noun, self.unit)


def class_table(scores: Mapping[str, Any], noun: str = "class", unit: str = "rows") -> str:
    """The lines of :meth:`ClassScores.to_dict`."""
    rows, num_others = class_rows(scores, MOST_LINES)
    width = max(map(len, (noun, *(row[0] for row in rows))))
    lines = [f"{noun:<{width}}  precision  recall      f1  {unit:>8}"]
    lines += [f"{name:<{width}}  {p:9.4f}  {r:6.4f}  {f:6.4f}  {n:8,}" for name, p, r, f, n in rows]
    return "\n".join([*lines, *([f"and {num_others:,} with a higher F1"] if num_others else [])])


def class_rows(
    scores: Mapping[str, Any], most: int = MOST_ROWS
) -> tuple[list[tuple[str, float, float, float, int]], int]:
    """Name, precision, recall, F1 and support of each class and of the means; and how many classes are left out.

    ``scores`` are those of :meth:`ClassScores.to_dict`. Of more than ``most`` classes those with the lowest F1.
    """
    classes, every = scores["by_class"], scores["micro"]["support"]
    lowest = set(sorted(classes, key=lambda name: classes[name]["f1"])[:most])
    shown = {name: found for name, found in classes.items() if name in lowest}
    if len(classes) > 1:
        names = ("macro", "weighted", "micro")
        shown |= {f"({name} average)": {**scores[name], "support": every} for name in names}
    rows = [(name, *(found[score] for score in _SCORES), int(found["support"])) for name, found in shown.items()]
    return rows, len(classes) - len(lowest)


def class_scores(predictions: npt.ArrayLike, references: npt.ArrayLike, names: Sequence[str]) -> ClassScores:
    """Scores of labels: class numbers ``(n,)``, or 0 and 1 ``(n, C)`` where a row has any number of classes.

    Raises:
        InputError: other shapes, or a number without a name.
    """
    predicted, right = as_values("predictions", predictions), as_values("references", references)
    if predicted.shape != right.shape or predicted.ndim not in (1, 2):
        raise InputError(f"predictions have shape {predicted.shape}, references {right.shape}; give (n,) or (n, C)")
    size = len(names)
    if predicted.ndim == 1:
        for number in (*predicted.tolist(), *right.tolist()):
            if not 0 <= number < size:
                raise InputError(f"class numbers must be 0 ... {size - 1}, got {number}")
        predicted, right = predicted.astype(np.int64), right.astype(np.int64)
        both = np.bincount(right[predicted == right], minlength=size)
        sides = np.bincount(predicted, minlength=size), np.bincount(right, minlength=size)
    else:
        if predicted.shape[1] != size:
            raise InputError(f"predictions have {predicted.shape[1]} columns, but there are {size} names")
        both = ((predicted != 0) & (right != 0)).sum(axis=0)
        sides = (predicted != 0).sum(axis=0), (right != 0).sum(axis=0)
    counts = np.stack([both, *sides], axis=1).tolist()
    return ClassScores({name: Found(*three) for name, three in zip(names, counts, strict=True) if any(three)})
