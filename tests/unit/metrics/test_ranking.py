"""Ranking metrics beside plain loops and scikit-learn, BM25 beside its formula."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from bertkit.errors import InputError
from bertkit.metrics.bm25 import BM25, words_of
from bertkit.metrics.ranking import judge_documents, judge_groups, ranking_values

NAMES = ("recall@3", "mrr@3", "ndcg@3", "map@3", "recall@10", "mrr@10", "ndcg@10", "map@10")


def plain(ranked: list[int], relevant: dict[int, float], k: int) -> dict[str, float]:
    """The definitions as loops over ranks."""
    hits = [rank for rank, document in enumerate(ranked[:k], 1) if document in relevant]
    dcg = sum(relevant[ranked[rank - 1]] / math.log2(rank + 1) for rank in hits)
    best = sum(gain / math.log2(rank + 1) for rank, gain in enumerate(sorted(relevant.values(), reverse=True)[:k], 1))
    return {
        f"recall@{k}": len(hits) / len(relevant),
        f"mrr@{k}": 1 / hits[0] if hits else 0.0,
        f"ndcg@{k}": dcg / best,
        f"map@{k}": sum((place + 1) / rank for place, rank in enumerate(hits)) / len(relevant),
    }


@given(
    st.lists(
        st.tuples(
            st.permutations(range(12)).flatmap(lambda order: st.integers(0, 12).map(lambda n: order[:n])),
            st.dictionaries(st.integers(0, 15), st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=1),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_documents_found(queries: list[tuple[list[int], dict[int, float]]]) -> None:
    judged = judge_documents([ranked for ranked, _ in queries], [relevant for _, relevant in queries], 10)
    values = ranking_values(judged, NAMES)
    for number, (ranked, relevant) in enumerate(queries):
        for name, expected in (plain(ranked, relevant, 3) | plain(ranked, relevant, 10)).items():
            assert values[name][number] == pytest.approx(expected)


def test_groups_beside_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    sizes = np.array([5, 1, 30, 12])
    groups = np.concatenate([[0], sizes.cumsum()])
    scores, gains = generator.normal(size=48), generator.integers(0, 4, 48)
    gains[groups[:-1]] = 2
    values = ranking_values(judge_groups(scores, gains, groups, 10), NAMES)
    for query, (start, end) in enumerate(pairwise(groups)):
        if end - start > 1:  # scikit-learn refuses one document
            assert values["ndcg@10"][query] == pytest.approx(
                ndcg_score([gains[start:end]], [scores[start:end]], k=10, ignore_ties=True)
            )
        order = np.argsort(-scores[start:end]).tolist()
        relevant = {place: float(gain) for place, gain in enumerate(gains[start:end]) if gain}
        for name, expected in (plain(order, relevant, 3) | plain(order, relevant, 10)).items():
            assert values[name][query] == pytest.approx(expected)


def test_equal_scores_earn_nothing() -> None:
    """Relevant documents stand first in the data; a constant score must do as chance does, not as that order does."""
    gains = np.tile([1.0] + [0.0] * 9, 2000)
    judged = judge_groups(np.zeros(20_000), gains, np.arange(0, 20_001, 10), 10)
    values = ranking_values(judged, ("mrr@10", "recall@3"))
    assert values["mrr@10"].mean() == pytest.approx(sum(1 / r for r in range(1, 11)) / 10, abs=0.02)
    assert values["recall@3"].mean() == pytest.approx(0.3, abs=0.03)
    in_the_order_of_the_data = judge_groups(-np.arange(20_000.0), gains, np.arange(0, 20_001, 10), 10)
    assert ranking_values(in_the_order_of_the_data)["mrr@10"].mean() == 1.0


def test_bad_input() -> None:
    with pytest.raises(InputError, match="query 1 has no relevant document"):
        judge_documents([[1], [2]], [{1: 1.0}, {}], 10)
    with pytest.raises(InputError, match="found twice"):
        judge_documents([[1, 1]], [{1: 1.0}], 10)
    with pytest.raises(InputError, match="above 0"):
        judge_documents([[1]], [{1: 0.0}], 10)
    with pytest.raises(InputError, match="no queries"):
        judge_documents([], [], 10)
    judged = judge_documents([[1]], [{1: 1.0}], 10)
    for name in ("ndcg", "ndcg@11", "hits@1", "ndcg@0"):
        with pytest.raises(InputError, match="unknown metric"):
            ranking_values(judged, (name,))


def test_bm25_is_its_formula() -> None:
    chance = random.Random(0)
    documents = [" ".join(chance.choices("abcdefgh", k=chance.randint(0, 20))) for _ in range(40)]
    index = BM25(documents)
    split = [text.split() for text in documents]
    mean = sum(map(len, split)) / len(split)
    for query in ("a b", "a a c", "z", "", "h"):
        expected = np.zeros(len(documents))
        for word in query.split():
            containing = sum(word in words for words in split)
            idf = math.log(1 + (len(split) - containing + 0.5) / (containing + 0.5))
            for number, words in enumerate(split):
                count = words.count(word)
                expected[number] += idf * count / (count + 1.2 * (1 - 0.75 + 0.75 * len(words) / mean))
        assert index.scores(query) == pytest.approx(expected)
        for k in (0, 3, 100):
            numbers, scores = index.search(query, k)
            order = [n for n in np.argsort(-expected, kind="stable") if expected[n] > 0][:k]
            assert scores == pytest.approx(expected[order])
            assert numbers.tolist() == order or len(set(np.round(scores, 9))) < len(scores)


def test_bm25_edges() -> None:
    assert BM25([]).search("a", 3)[0].tolist() == []
    assert BM25(["", ""]).scores("a").tolist() == [0.0, 0.0]
    assert BM25(["x", "The Cat", "a cat"]).search("CAT", 1)[0].tolist() == [1]
    assert words_of("Straße 3.5 don't 日本語カナ 한국어") == "straße 3 5 don t 日 本 語 カ ナ 한국어".split()
