"""How well vectors say which texts are alike.

Letters of the array shapes: R rows, U texts, D width of a vector, Q different anchors.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bertkit.metrics.intervals import Draws, drawn_means
from bertkit.metrics.nearest import directions, nearest
from bertkit.metrics.ranking import judge_documents, ranking_values
from bertkit.metrics.scores import METRICS, ranks
from bertkit.ragged import Floats, Ints
from bertkit.tasks.embeddings.features import NONE, TextColumns
from bertkit.tasks.embeddings.task import EmbeddingTask

Values = npt.NDArray[np.float64]
#: How many documents are found for each anchor: as many as the metrics of task pairs look at.
DEPTH = 100


class WordVectors(Protocol):
    """Vectors of texts that are mostly 0, compared by their products."""

    def nearest(self, queries: Ints, documents: Ints, depth: int) -> Ints:
        """Which documents are nearest to each query, as places among ``documents``, best first: ``(Q, depth)``."""

    def column_products(self, columns: Ints) -> Floats:
        """Products of each row's anchor with its other texts, as :func:`column_cosines`."""


#: Vectors of texts: an array ``(U, D)``, compared by cosines, or :class:`WordVectors`.
Vectors = Floats | WordVectors


@dataclass(frozen=True, slots=True)
class Queries:
    """The different anchors ``(Q,)`` of some rows, that of each row ``(R,)``, and the texts to be found for each."""

    anchors: Ints
    of_row: Ints
    positives: Sequence[Mapping[Hashable, float]]

    @classmethod
    def of(cls, columns: Ints) -> Queries:
        """Of the rows of :class:`bertkit.tasks.embeddings.features.TextColumns`."""
        anchors, of_row = np.unique(columns[:, 0], return_inverse=True)
        positives: list[dict[Hashable, float]] = [{} for _ in anchors]
        for query, positive in zip(of_row.tolist(), columns[:, 1].tolist(), strict=True):
            positives[query][positive] = 1.0
        return cls(anchors, of_row, positives)

    def values(self, ranked: Sequence[Sequence[Hashable]], metrics: Sequence[str]) -> dict[str, Values]:
        """Each metric of each query ``(Q,)``; ``ranked`` has the numbers of the texts found for each, best first."""
        return ranking_values(judge_documents(ranked, self.positives, DEPTH), metrics)


def find_positives(vectors_UD: Vectors, columns: Ints, documents: Ints, metrics: Sequence[str]) -> dict[str, Values]:
    """Each metric of each different anchor ``(Q,)``, which searches all ``documents``, the numbers of their texts."""
    queries = Queries.of(columns)
    if not isinstance(vectors_UD, np.ndarray):
        found = vectors_UD.nearest(queries.anchors, documents, DEPTH)
    else:
        unit_UD = directions(vectors_UD)
        found, _ = nearest(unit_UD[queries.anchors], unit_UD[documents], DEPTH)
    return queries.values(documents[found].tolist(), metrics)


def column_cosines(vectors_UD: Vectors, columns: Ints) -> Floats:
    """Cosine of each row's anchor and its other texts, ``(R, C - 1)``; NaN where a row has no such text."""
    if not isinstance(vectors_UD, np.ndarray):
        return vectors_UD.column_products(columns)
    unit_UD = directions(vectors_UD)
    found = np.full((len(columns), columns.shape[1] - 1), np.nan, np.float32)
    for place, column in enumerate(columns[:, 1:].T):
        there = column != NONE
        found[there, place] = np.einsum("rd,rd->r", unit_UD[columns[there, 0]], unit_UD[column[there]])
    return found


def nearer(to_positives: npt.NDArray[np.floating], to_negatives: npt.NDArray[np.floating]) -> Values:
    """1 where the first number is larger, 0 where it is smaller, 1/2 where they are equal."""
    return (1.0 + np.sign(to_positives.astype(np.float64) - to_negatives)) / 2


def scores_of(task: EmbeddingTask, vectors_UD: Vectors, encoded: TextColumns) -> dict[str, float]:
    """Every metric of a task; a correlation with cosines that are all the same is 0."""
    if task.compares == "pairs":
        of_queries = find_positives(vectors_UD, encoded.columns, encoded.documents, task.metrics)
        return {name: float(values.mean()) for name, values in of_queries.items()}
    cosines_RC = column_cosines(vectors_UD, encoded.columns)
    if task.compares == "triplets":
        return {"accuracy": float(nearer(cosines_RC[:, 0], cosines_RC[:, 1]).mean())}
    assert encoded.scores is not None, "there are scores to compare with"
    found = {name: METRICS[name](cosines_RC[:, 0], encoded.scores) for name in task.metrics}
    return {name: float(np.nan_to_num(value)) for name, value in found.items()}


def resampled(task: EmbeddingTask, vectors_UD: Vectors, encoded: TextColumns, draws: Draws) -> Values:
    """The main metric of K sets of rows. An anchor of several rows counts once in all, as it does in the score."""
    if task.compares == "pairs":
        queries = Queries.of(encoded.columns)
        (values_Q,) = find_positives(vectors_UD, encoded.columns, encoded.documents, [task.main_metric]).values()
        weights_R = 1.0 / np.bincount(queries.of_row)[queries.of_row]
        weighted_R = weights_R * values_Q[queries.of_row]
        return np.array([weighted_R[draw].sum() / weights_R[draw].sum() for draw in draws], np.float64)
    cosines_RC = column_cosines(vectors_UD, encoded.columns)
    if task.compares == "triplets":
        return drawn_means(nearer(cosines_RC[:, 0], cosines_RC[:, 1]), draws)
    assert encoded.scores is not None
    metric, scores = METRICS[task.main_metric], encoded.scores
    return np.nan_to_num([metric(cosines_RC[draw, 0], scores[draw]) for draw in draws])


def badness_of(task: EmbeddingTask, vectors_UD: Vectors, encoded: TextColumns) -> Values | None:
    """How wrong each row is ``(R,)``.

    Of pairs 1 less the cosine; of triplets how much nearer the negative is; of scores by what share of all rows the
    cosine's rank differs from that of the score, None without scores.
    """
    cosines_RC = column_cosines(vectors_UD, encoded.columns).astype(np.float64)
    if task.compares == "pairs":
        return 1.0 - cosines_RC[:, 0]
    if task.compares == "triplets":
        return cosines_RC[:, 1] - cosines_RC[:, 0]
    if encoded.scores is None:
        return None
    found: Values = np.abs(ranks(cosines_RC[:, 0]) - ranks(encoded.scores)) / len(encoded)
    return found
