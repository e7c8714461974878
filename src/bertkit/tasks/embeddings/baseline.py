"""Scores of dev without a neural network: BM25 for what is searched, TF-IDF and ridge regression for scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertkit.metrics.bm25 import BM25
from bertkit.tasks.embeddings.features import number_texts
from bertkit.tasks.embeddings.scoring import DEPTH, Queries, nearer
from bertkit.tasks.embeddings.task import EmbeddingExample, EmbeddingTask
from bertkit.tasks.examples import Example, Row
from bertkit.tasks.text.baseline import tfidf_baseline
from bertkit.tasks.text.task import TextTask


def embedding_baseline(train: Sequence[EmbeddingExample], dev: Sequence[EmbeddingExample], task: EmbeddingTask) -> Row:
    """Scores of dev; only those of scored pairs learn from train."""
    if task.compares == "scores":
        regression = TextTask(task.name, None, task.metrics, task.main_metric, task.columns)
        return tfidf_baseline(_as_texts(train), _as_texts(dev), regression)
    scores = _triplet_scores(dev) if task.compares == "triplets" else _search_scores(dev, task.metrics)
    return {
        "name": "BM25",
        "model": "BM25 in Lucene's form, k1 1.2, b 0.75, over the other texts of dev",
        "metrics": scores,
    }


def _as_texts(rows: Sequence[EmbeddingExample]) -> list[Example]:
    return [Example(row.text, row.text_pair, row.score, row.row, row.source) for row in rows]


def _search_scores(dev: Sequence[EmbeddingExample], metrics: Sequence[str]) -> dict[str, float]:
    numbered = number_texts(dev)
    queries, documents = Queries.of(numbered.columns), np.flatnonzero(~numbered.is_anchor)
    index = BM25(numbered.texts[number] for number in documents.tolist())
    ranked = [documents[index.search(numbered.texts[number], DEPTH)[0]].tolist() for number in queries.anchors.tolist()]
    return {name: float(values.mean()) for name, values in queries.values(ranked, metrics).items()}


def _triplet_scores(dev: Sequence[EmbeddingExample]) -> dict[str, float]:
    index = BM25(text for row in dev for text in row.texts[1:])
    found = np.array([index.scores(row.text)[2 * place : 2 * place + 2] for place, row in enumerate(dev)])
    return {"accuracy": float(nearer(found[:, 0], found[:, 1]).mean())}
