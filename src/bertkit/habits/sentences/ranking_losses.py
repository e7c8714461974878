"""``cross_encoder.losses`` and ``sparse_encoder.losses`` of sentence-transformers: rerankers and sparse vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bertkit.config.reading_settings import RankLoss
from bertkit.errors import DataError, InputError, shorten
from bertkit.habits.keywords import known_keywords
from bertkit.habits.sentences.comparison_losses import TrainingLoss
from bertkit.habits.sentences.training_rows import LABELS, columns_in, compared_rows
from bertkit.tasks.examples import Examples
from bertkit.tasks.reading.bad_rows import RowError, text_in
from bertkit.tasks.rerank.task import RERANK, RerankExample
from bertkit.tasks.rerank.workflow import RerankWorkflow
from bertkit.tasks.sparse.task import SPARSE_PAIRS
from bertkit.tasks.sparse.workflow import SparseWorkflow
from bertkit.tasks.workflow import AnyWorkflow


class RankingLoss(TrainingLoss):
    """A loss of a reranker: rows are a query, a document and a label, or lists of documents and of labels."""

    def __init__(self, model: Any, rank_loss: RankLoss, **options: object) -> None:
        known_keywords(type(self).__name__, options, ())
        if (count := getattr(model, "num_labels", 1)) != 1:
            raise InputError(
                f"the model has {count} outputs, and a reranker one; train a classifier of pairs by "
                'bertkit.finetune("csv", data="pairs.csv", text="sentence1", text_pair="sentence2", label="label", ...)'
            )
        self.settings: Mapping[str, Any] = {"rank_loss": rank_loss}

    def workflow(self) -> AnyWorkflow:
        return RerankWorkflow(RERANK)

    def examples(self, rows: Any) -> Examples[Any]:
        columns = columns_in(rows)
        label = next((name for name in columns if name in LABELS), None)
        texts = [name for name in columns if name not in LABELS]
        if label is None or len(texts) != 2:
            raise DataError(
                f"this loss reads a column of queries, one of documents, and one of labels, called "
                f"{' or '.join(map(repr, LABELS))}; the columns are {shorten(columns)}"
            )
        lines = zip(columns[texts[0]], columns[texts[1]], columns[label], strict=True)
        return Examples([_example(number, texts, *line) for number, line in enumerate(lines)], split="train")


class BinaryCrossEntropyLoss(RankingLoss):
    """Each pair by itself, labels from 0 to 1: ``rank_loss="pointwise"``."""

    def __init__(self, model: Any, **options: object) -> None:
        super().__init__(model, "pointwise", **options)


class ListNetLoss(RankingLoss):
    """The softmax over the documents of a query: ``rank_loss="listwise"``."""

    def __init__(self, model: Any, **options: object) -> None:
        super().__init__(model, "listwise", **options)


class LambdaLoss(RankingLoss):
    """NDCG-Loss2++, the usual weighting there: ``rank_loss="lambda"``."""

    def __init__(self, model: Any, **options: object) -> None:
        super().__init__(model, "lambda", **options)


def _example(number: int, names: Sequence[str], query: Any, documents: Any, labels: Any) -> RerankExample:
    listed = list(documents) if isinstance(documents, list | tuple) else [documents]
    gains = list(labels) if isinstance(labels, list | tuple) else [labels]
    where = f"row {number} (counted from 0)"
    if len(listed) != len(gains):
        raise DataError(f"{where} has {len(listed)} documents and {len(gains)} labels; expected one for each")
    try:
        asked = text_in(f"column {names[0]!r}", query)
        texts = tuple(text_in(f"column {names[1]!r}", each) for each in listed)
        values = tuple(map(float, gains))
    except (RowError, TypeError, ValueError) as fault:
        raise DataError(f"{where}: {fault}") from None
    if not all(value >= 0 for value in values):
        raise DataError(f"{where} has the labels {shorten(values)}; expected 0 or more")
    return RerankExample(asked, texts, values, number, "the training rows")


@dataclass(frozen=True)
class SparseMultipleNegativesRankingLoss(TrainingLoss):
    """The loss inside of :class:`SpladeLoss`: of all texts of a batch, find each anchor's own by the product."""

    model: object
    settings: Mapping[str, Any] = field(default_factory=dict)

    def workflow(self) -> AnyWorkflow:
        return SparseWorkflow(SPARSE_PAIRS)

    def examples(self, rows: Any) -> Examples[Any]:
        return compared_rows(rows, "pairs")


class SpladeLoss(SparseMultipleNegativesRankingLoss):
    """The same with penalties on words: ``query_flops`` and ``document_flops``."""

    def __init__(
        self,
        model: object,
        loss: SparseMultipleNegativesRankingLoss,
        document_regularizer_weight: float,
        query_regularizer_weight: float | None = None,
    ) -> None:
        if not isinstance(loss, SparseMultipleNegativesRankingLoss):
            raise InputError(f"loss= must be a SparseMultipleNegativesRankingLoss, got a {type(loss).__name__}")
        strengths = {"query_flops": query_regularizer_weight or 0.0, "document_flops": document_regularizer_weight}
        super().__init__(model, strengths)
