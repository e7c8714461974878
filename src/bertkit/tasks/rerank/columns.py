"""How tables of one's own hold queries and documents, and which documents are added to those of a query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from bertkit.config.file_columns import Option
from bertkit.tasks.own_files import LabelledTable
from bertkit.tasks.rerank.task import BM25_SEARCH, RerankTask


@dataclass(frozen=True)
class RerankFiles(LabelledTable):
    """Tables of a query and a document a row."""

    title = "Rerankers (task rerank)"

    negatives: Annotated[
        int, Option("Add this many documents of the file to each query as negatives: those nearest to it.")
    ] = 0
    searcher: Annotated[
        str, Option("How --negatives are found: bm25, or the vectors of a model (folder or Hub name).")
    ] = BM25_SEARCH

    def with_columns(self, task: RerankTask) -> RerankTask:
        columns = self.places_or(task.columns, self.label)
        mined = {name: value for name, value in self.given.items() if name in ("negatives", "searcher")}
        return replace(task, columns=columns, **mined)
