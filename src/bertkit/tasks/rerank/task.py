"""Reranking: a query and some documents, each relevant, not relevant, or relevant to a degree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from bertkit.config.file_columns import Columns
from bertkit.config.reading_settings import RankLoss
from bertkit.errors import ConfigError, InputError
from bertkit.metrics.scores import check_metrics
from bertkit.tasks.examples import BuiltIn, Located

#: The scores, see :mod:`bertkit.metrics.ranking`.
METRICS = ("ndcg@10", "mrr@10", "recall@1", "recall@10")
#: The document of a row that needs no label: it is relevant.
POSITIVE = "positive"
QUERY_NAMES = ("query", "question", "search_query", "anchor", "sentence1", "text_a")
DOCUMENT_NAMES = (
    *("document", "documents", "passage", "passages", "doc", "docs", "text", "context", "answer", POSITIVE),
    *("sentence2", "text_b"),
)
GAIN_NAMES = ("label", "labels", "relevance", "score", "scores", "grade", "gain", "rating")
USUAL_COLUMNS = Columns(QUERY_NAMES, DOCUMENT_NAMES, GAIN_NAMES)
#: The highest label that each loss takes: a probability; in the lambda loss gains are powers of two, and higher grades
#: would drown all others.
HIGHEST_LABEL: Mapping[RankLoss, float] = {"pointwise": 1.0, "listwise": math.inf, "lambda": 30.0}
#: Searches by words, not by the vectors of a model.
BM25_SEARCH = "bm25"


@dataclass(frozen=True, slots=True)
class RerankExample(Located):
    """One query with its documents, none of them twice; ``gains`` say how relevant each is, 0 or more.

    ``lines``: the row of each document in its file.
    """

    query: str
    documents: tuple[str, ...]
    gains: tuple[float, ...] | None = None
    row: int = 0
    source: str = ""
    lines: tuple[int, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, asked: Any, where: str) -> Self:
        """A query in the one form; checked when it is drawn."""
        if not isinstance(asked, Mapping) or asked.keys() != {"query", "documents"}:
            got = sorted(map(str, asked)) if isinstance(asked, Mapping) else type(asked).__name__
            raise InputError(f"{where} must be a dict with 'query' and 'documents', got {got}")
        documents = asked["documents"]
        if isinstance(documents, str) or not isinstance(documents, Iterable):
            raise InputError(f"'documents' of {where} must be a list of texts, got {type(documents).__name__}")
        texts = tuple(documents)
        if not texts:
            raise InputError(f"{where} has no documents; expected one or more")
        for value in (asked["query"], *texts):
            if not isinstance(value, str):
                raise InputError(f"{where} holds a {type(value).__name__}, {value!r:.40}; expected texts")
        return cls(asked["query"], texts)

    @property
    def text(self) -> str:
        """What rows are compared by."""
        return self.query

    @property
    def text_pair(self) -> None:
        """There is no second text that rows are compared by."""
        return None

    @property
    def label(self) -> int | None:
        """All queries are of one class when rows are held out; None where there are no labels."""
        return None if self.gains is None else 0

    @property
    def has_order(self) -> bool:
        """Whether one of the documents is more relevant than another, so that their order can be right or wrong."""
        return self.gains is not None and max(self.gains) > min(self.gains)


@dataclass(frozen=True, slots=True)
class RerankTask(BuiltIn):
    """A query and documents -> the documents by falling relevance.

    columns: ``text`` is where the queries are, ``text_pair`` the documents, ``label`` how relevant they are.
    negatives: so many documents of the file that are not among a query's own, but near to it, are added to it as not
        relevant.
    searcher: what finds them: :data:`BM25_SEARCH`, or the folder or Hub name of a model, by the cosine of its vectors.
    """

    #: The kind of task, see :data:`bertkit.tasks.registry.KINDS`.
    form: ClassVar[str] = "rerank"

    name: str
    columns: Columns = USUAL_COLUMNS
    negatives: int = 0
    searcher: str = BM25_SEARCH
    metrics: tuple[str, ...] = METRICS
    main_metric: str = METRICS[0]

    def __post_init__(self) -> None:
        check_metrics(self.name, self.metrics, self.main_metric, METRICS)
        if self.negatives < 0:
            raise ConfigError(f"task {self.name}: negatives={self.negatives}; give a number from 0")
        if self.searcher != BM25_SEARCH and not self.negatives:
            raise ConfigError(f"searcher={self.searcher!r} finds negatives, and none are asked for; give negatives=N")


RERANK = RerankTask(
    name="rerank",
    about="which of a query's documents are relevant to it?",
    folders=("rerank", "ranking"),
)
