"""How well vectors say which texts are alike. Imports no torch.

Letters of the array shapes: R rows, U texts, D width of a vector, Q different anchors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertkit.metrics.nearest import directions, nearest
from bertkit.metrics.ranking import ranking_values
from bertkit.metrics.ranking import judge_documents
from bertkit.ragged import Floats, Ints
from bertkit.tasks.embeddings.features import NONE

Values = npt.NDArray[np.float64]
#: How many documents are found for each anchor: as many as the metrics of task pairs look at.
DEPTH = 100


@dataclass(frozen=True, slots=True)
class Queries:
    """The different anchors of some rows, and what is to be found for each among all other texts.

    anchors: int64 ``(Q,)``, numbers of their texts. of_row: int64 ``(R,)``, which of them each row has.
    positives: Q sets of the numbers of texts.
    """

    anchors: Ints
    of_row: Ints
    positives: Sequence[Mapping[int, float]]

    @classmethod
    def of(cls, columns: Ints) -> Queries:
        """Of the rows of :class:`bertkit.tasks.embeddings.features.TextColumns`."""
        anchors, of_row = np.unique(columns[:, 0], return_inverse=True)
        positives: list[dict[int, float]] = [{} for _ in anchors]
        for query, positive in zip(of_row.tolist(), columns[:, 1].tolist(), strict=True):
            positives[query][positive] = 1.0
        return cls(anchors, of_row, positives)

    def values(self, ranked: Sequence[Sequence[int]], metrics: Sequence[str]) -> dict[str, Values]:
        """Each metric of each query ``(Q,)``; ``ranked`` has the numbers of the texts found for each, best first."""
        return ranking_values(judge_documents(ranked, self.positives, DEPTH), metrics)


def find_positives(vectors_UD: Floats, columns: Ints, documents: Ints, metrics: Sequence[str]) -> dict[str, Values]:
    """Each metric of each different anchor ``(Q,)``, where it searches all ``documents``, which are numbers of texts."""
    queries, unit_UD = Queries.of(columns), directions(vectors_UD)
    found, _ = nearest(unit_UD[queries.anchors], unit_UD[documents], DEPTH)
    return queries.values(documents[found].tolist(), metrics)


def column_cosines(vectors_UD: Floats, columns: Ints) -> Floats:
    """Cosine of each row's anchor and its other texts, ``(R, C - 1)``; NaN where a row has no such text."""
    unit_UD = directions(vectors_UD)
    found = np.full((len(columns), columns.shape[1] - 1), np.nan, np.float32)
    for place, column in enumerate(columns[:, 1:].T):
        there = column != NONE
        found[there, place] = np.einsum("rd,rd->r", unit_UD[columns[there, 0]], unit_UD[column[there]])
    return found


def nearer(to_positives: npt.NDArray[np.floating], to_negatives: npt.NDArray[np.floating]) -> Values:
    """1 where the first number is larger, 0 where it is smaller, 1/2 where they are equal."""
    return (1.0 + np.sign(to_positives.astype(np.float64) - to_negatives)) / 2
