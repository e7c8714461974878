"""Pairs of texts that sparse vectors are trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bertkit.tasks.embeddings.task import SCORES, EmbeddingTask

#: Scores beside those of pairs: the mean number of words whose weight is above 0.
WORDS = ("query_words", "document_words")


@dataclass(frozen=True, slots=True)
class SparseTask(EmbeddingTask):
    """As :class:`bertkit.tasks.embeddings.task.EmbeddingTask`; texts are compared by the weights of common words."""

    #: The kind of task, see :data:`bertkit.tasks.registry.KINDS`.
    form: ClassVar[str] = "sparse"


SPARSE_PAIRS = SparseTask(
    "sparse-pairs",
    "pairs",
    SCORES["pairs"],
    "ndcg@10",
    about="texts that belong together, with or without negatives, to be found by weights of words (SPLADE)",
)
