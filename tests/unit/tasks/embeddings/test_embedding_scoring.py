"""Scores of vectors, beside loops over plain cosines; baselines; resampled rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from bertkit.metrics.intervals import bootstrap_draws
from bertkit.model.text_comparison import ComparedTexts
from bertkit.ragged import Floats, Ragged, boundaries_of
from bertkit.tasks.embeddings.baseline import embedding_baseline
from bertkit.tasks.embeddings.features import NONE, TextColumns, number_texts
from bertkit.tasks.embeddings.scoring import badness_of, column_cosines, resampled, scores_of
from bertkit.tasks.embeddings.task import PAIRS, SCORED_PAIRS, TRIPLETS, EmbeddingExample
from bertkit.tasks.workflow import workflow_of


def columns_of(numbers: list[list[int]], scores: list[float] | None = None) -> TextColumns:
    """Rows of texts with these numbers, of one token each."""
    columns = np.array(numbers)
    count = int(columns.max()) + 1
    ids = np.zeros(count, np.int32)
    texts = Ragged(ids, boundaries_of(np.ones(count, np.int64)), ids.astype(np.int8), np.ones(count, np.int64))
    values = None if scores is None else np.array(scores, np.float32)
    return TextColumns(texts, columns, np.arange(count), values)


@pytest.fixture
def vectors() -> Floats:
    return np.random.default_rng(4).normal(size=(20, 4)).astype(np.float32)


def cosine(vectors: Floats, a: int, b: int) -> float:
    x, y = vectors[a].astype(np.float64), vectors[b].astype(np.float64)
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def test_pairs_search_all_other_texts(vectors: Floats) -> None:
    """Anchors 0 to 4, anchor 0 with two positives; 10 to 19 are searched, negatives among them."""
    rows = [[0, 10, 15], [0, 11, 16], [1, 12, 17], [2, 13, 18], [3, 14, 19], [4, 14, NONE]]
    found = scores_of(PAIRS, vectors, columns_of(rows))
    positives = {0: {10, 11}, 1: {12}, 2: {13}, 3: {14}, 4: {14}}
    ranked = {a: sorted(range(10, 20), key=lambda b: -cosine(vectors, a, b)) for a in positives}
    places = {a: [ranked[a].index(b) + 1 for b in positives[a]] for a in positives}
    assert found["mrr@10"] == pytest.approx(np.mean([1 / min(places[a]) for a in places]))
    assert found["recall@1"] == pytest.approx(np.mean([(1 in places[a]) / len(places[a]) for a in places]))
    gains = {a: sum(1 / np.log2(place + 1) for place in places[a]) for a in places}
    best = {a: sum(1 / np.log2(place + 1) for place in range(1, len(places[a]) + 1)) for a in places}
    assert found["ndcg@10"] == pytest.approx(np.mean([gains[a] / best[a] for a in places]))
    assert list(found) == list(PAIRS.metrics)


def test_triplets_and_scores(vectors: Floats) -> None:
    rows = [[row, row + 5, row + 10] for row in range(5)]
    right = [cosine(vectors, a, p) > cosine(vectors, a, n) for a, p, n in rows]
    assert 0 < sum(right) < 5
    assert scores_of(TRIPLETS, vectors, columns_of(rows)) == {"accuracy": np.mean(right)}
    scores = [3.0, 0.0, 1.5, 1.5, 5.0]
    pairs = columns_of([row[:2] for row in rows], scores)
    found = scores_of(SCORED_PAIRS, vectors, pairs)
    cosines = [cosine(vectors, a, p) for a, p, _ in rows]
    assert found["spearman"] == pytest.approx(spearmanr(cosines, scores).statistic)
    assert found["pearson"] == pytest.approx(np.corrcoef(cosines, scores)[0, 1])
    assert scores_of(SCORED_PAIRS, np.ones_like(vectors), pairs) == {"spearman": 0.0, "pearson": 0.0}
    alike = np.ones_like(vectors)
    assert scores_of(TRIPLETS, alike, columns_of(rows)) == {"accuracy": 0.5}


def test_rows_with_fewer_negatives(vectors: Floats) -> None:
    found = column_cosines(vectors, np.array([[0, 5, 6], [1, 7, NONE]]))
    assert found[0, 1] == pytest.approx(cosine(vectors, 0, 6), abs=1e-6)
    assert np.isnan(found).tolist() == [[False, False], [False, True]]


@pytest.mark.parametrize("task", [PAIRS, TRIPLETS, SCORED_PAIRS])
def test_the_interval_is_around_the_score(task, vectors: Floats) -> None:
    numbers = [[0, 10, 15], [0, 11, 16], [1, 12, 17], [2, 13, 18], [3, 14, 19]]
    if task is SCORED_PAIRS:
        rows = columns_of([row[:2] for row in numbers], [1.0, 2.0, 3.0, 4.0, 5.0])
    else:
        rows = columns_of(numbers)
    score = scores_of(task, vectors, rows)[task.main_metric]
    every = np.arange(5)[None]
    assert resampled(task, vectors, rows, every) == pytest.approx([score])
    drawn = resampled(task, vectors, rows, bootstrap_draws(5))
    assert drawn.shape == (1000,)
    assert drawn.min() <= score <= drawn.max()
    assert np.isfinite(drawn).all()
    badness = badness_of(task, vectors, rows)
    assert badness is not None
    assert badness.shape == (5,)


def examples(*rows: tuple[str, ...], scores: list[float] | None = None) -> list[EmbeddingExample]:
    return [EmbeddingExample(row, None if scores is None else scores[n], n + 1, "f") for n, row in enumerate(rows)]


def test_baselines() -> None:
    rows = examples(("red fox", "a red fox runs", "blue whale"), ("green tea", "tea that is green", "red wine"))
    found = embedding_baseline(rows, rows, TRIPLETS)
    assert found["metrics"] == {"accuracy": 1.0}
    assert found["name"] == "BM25"
    assert embedding_baseline(rows, rows, PAIRS)["metrics"]["recall@1"] == 1.0
    nothing = examples(("x", "y", "z"), ("v", "w", "u"))
    assert embedding_baseline(nothing, nothing, PAIRS)["metrics"]["ndcg@10"] == 0.0
    assert embedding_baseline(nothing, nothing, TRIPLETS)["metrics"] == {"accuracy": 0.5}
    scored = examples(*[("a b c", "a b c"), ("a b c", "x y z")] * 10, scores=[5.0, 0.0] * 10)
    assert embedding_baseline(scored, scored, SCORED_PAIRS)["metrics"]["spearman"] == pytest.approx(1.0)


def test_a_text_has_a_number_on_each_side() -> None:
    found = number_texts(examples(("a", "b"), ("A ", "a"), ("b", "c", "d")))
    assert found.texts == ["a", "b", "A ", "a", "b", "c", "d"]
    assert found.is_anchor.tolist() == [True, False, True, False, True, False, False]
    assert found.columns.tolist() == [[0, 1, NONE], [2, 3, NONE], [4, 5, 6]]
    assert found.same.tolist() == [0, 1, 0, 0, 1, 2, 3]


def test_a_batch_has_each_text_once() -> None:
    """Numbers of a batch's texts, anchors first; the negative of one row is the positive of another."""
    encoded = columns_of([[3, 9, NONE], [1, 8, 9], [3, 7, 8], [0, 2, 4]])
    batch = workflow_of(PAIRS).collate(encoded, [0, 2, 1])
    assert isinstance(batch, ComparedTexts)
    assert batch.num_anchors == 2
    assert batch.texts.layout.num_sequences == 5
    assert batch.columns.tolist() == [[1, 4, NONE], [1, 2, 3], [0, 3, 4]]
    whole = workflow_of(PAIRS).collate(columns_of([[0, 2], [1, 3]]), [1, 0])
    assert isinstance(whole, ComparedTexts)
    assert whole.columns.tolist() == [[1, 3], [0, 2]]
    assert whole.scores is None
