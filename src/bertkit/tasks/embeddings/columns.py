"""How tables of one's own hold texts that are compared."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, cast

from bertkit.config.file_columns import Option, TextTable
from bertkit.tasks.embeddings.task import EmbeddingTask
from bertkit.tasks.own_files import EncodedFiles
from bertkit.tasks.registry import get_task


@dataclass(frozen=True)
class EmbeddingFiles(TextTable, EncodedFiles):
    """Tables of two texts a row or more."""

    title = "Texts to compare (tasks pairs, triplets, scored-pairs)"
    remarks = "Similar texts get similar vectors; sentence-transformers loads the run as well."

    negative: Annotated[
        str | None, Option("Column of texts unlike --text, or several (a,b,c); default: columns named negative.")
    ] = None
    score: Annotated[str | None, Option("Column of the similarity of two texts; any range of numbers.")] = None

    @classmethod
    def taken_by(cls, name: str) -> Collection[str]:
        scored = cast(EmbeddingTask, get_task(name)).compares == "scores"
        return [option for option in super().taken_by(name) if option != ("negative" if scored else "score")]

    def with_columns(self, task: EmbeddingTask) -> EmbeddingTask:
        negatives = tuple(self.negative.split(",")) if self.negative else task.negatives
        return replace(task, columns=self.places_or(task.columns, self.score), negatives=negatives)
