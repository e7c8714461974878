"""Clusters, the words of topics, and texts that say the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from bertkit.errors import InputError
from bertkit.inference.retrieval import near_texts, text_clusters
from bertkit.inference.retrieval.near_texts import (
    FEWEST,
    auto_threshold,
    find_groups,
    find_near_texts,
    firsts_of_groups,
    nearest_two,
    similar_pairs,
)
from bertkit.inference.retrieval.text_clusters import cluster_texts
from bertkit.inference.retrieval.topic_words import class_tfidf, words_of_classes
from bertkit.metrics.bm25 import words_of
from bertkit.metrics.clusters import v_measure
from bertkit.metrics.nearest import directions


def blobs(sizes: list[int], spread: float = 0.1, width: int = 8, seed: int = 0):
    """Texts and vectors of length 1 around as many directions, in random order, and the group of each."""
    chance = np.random.default_rng(seed)
    groups = chance.permutation(np.repeat(np.arange(len(sizes)), sizes))
    vectors = directions(np.eye(width, dtype=np.float32)[groups] + spread * chance.standard_normal((sum(sizes), width)))
    return [f"group{group} text {number}" for number, group in enumerate(groups)], vectors, groups


@pytest.mark.parametrize("method", ["kmeans", "agglomerative"])
def test_clusters_are_found(method) -> None:
    texts, vectors, groups = blobs([10, 30, 20])
    found = cluster_texts(texts, vectors, method=method)
    assert v_measure(found.assigned, groups) == pytest.approx(1.0)
    assert [each.size for each in found.clusters] == [30, 20, 10]
    assert np.bincount(found.assigned).tolist() == [30, 20, 10]
    assert found.chosen
    assert found.silhouette == pytest.approx(silhouette_score(vectors, groups, metric="cosine"), abs=1e-3)
    for each in found.clusters:
        mine = np.flatnonzero(found.assigned == each.number)
        centre = vectors[mine].mean(axis=0)
        cosines = vectors[mine] @ centre / np.linalg.norm(centre)
        np.testing.assert_allclose(found.nearness[mine], cosines, atol=1e-5)
        assert each.examples == [texts[row] for row in mine[np.argsort(-cosines)][:3]]
    assert len(cluster_texts(texts, vectors, 5, method=method).clusters) == 5
    assert "group1" in found.render()
    one = cluster_texts(texts, vectors, 1, method=method)
    assert (len(one.clusters), one.silhouette, one.clusters[0].silhouette) == (1, None, None)


def test_a_threshold_joins_clusters_up_to_it() -> None:
    texts, vectors, groups = blobs([5, 4], spread=0.01, width=2)
    far = cluster_texts(texts, vectors, method="agglomerative", threshold=0.5)
    assert v_measure(far.assigned, groups) == pytest.approx(1.0)
    assert len(cluster_texts(texts, vectors, method="agglomerative", threshold=-0.5).clusters) == 1


def test_many_texts_are_sampled_and_batched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_clusters, "SAMPLED", 40)
    monkeypatch.setattr(text_clusters, "ALL_AT_ONCE", 50)
    texts, vectors, groups = blobs([50, 40, 30])
    found = cluster_texts(texts, vectors)
    assert v_measure(found.assigned, groups) == pytest.approx(1.0)
    assert len(found.notes) == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"k": 0}, "cannot be put into 0 clusters"),
        ({"k": 10}, "9 texts that the model tells apart cannot be put into 10"),
        ({"threshold": 0.5}, "for method='agglomerative'"),
        ({"threshold": 0.5, "k": 2, "method": "agglomerative"}, "in place of k"),
        ({"threshold": 2.0, "method": "agglomerative"}, "a cosine from -1 to 1"),
    ],
)
def test_clusters_that_cannot_be(options, told: str) -> None:
    texts, vectors, _ = blobs([5, 4])
    with pytest.raises(InputError, match=told):
        cluster_texts(texts, vectors, **options)
    for same, theirs in ((["a", "a"], vectors[:2]), (["a", "A"], vectors[[0, 0]])):
        with pytest.raises(
            InputError, match="1 text that the model tells apart cannot be put into two or more clusters"
        ):
            cluster_texts(same, theirs)


def test_agglomerative_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_clusters, "MOST_DISTANCES", 8)
    texts, vectors, _ = blobs([5, 4])
    with pytest.raises(InputError, match="at most 8 texts, got 9"):
        cluster_texts(texts, vectors, method="agglomerative")


def test_class_tfidf_by_hand() -> None:
    """Words a, b, c; the classes have 4, 2 and 3 words, 3 on average."""
    counts = np.array([[3, 1, 0], [0, 2, 0], [1, 1, 1]])
    idf = {"a": math.log(1 + 3 / 4), "b": math.log(1 + 3 / 4), "c": math.log(1 + 3 / 1)}
    expected = [
        [3 / 4 * idf["a"], 1 / 4 * idf["b"], 0],
        [0, idf["b"], 0],
        [idf["a"] / 3, idf["b"] / 3, idf["c"] / 3],
    ]
    np.testing.assert_allclose(class_tfidf(counts), expected, rtol=1e-12)
    np.testing.assert_allclose(class_tfidf(np.zeros((2, 3), np.int64)), np.zeros((2, 3)))


#: Directions of a made-up model: cards, rates, and what function words share.
MEANINGS = {"card": [1, 0, 0], "lost": [0.5, 0, 1], "rate": [0, 1, 0], "rates": [0, 1, 0], "high": [0, 0.5, 1]}


def encode(texts: list[str]):
    """Each text as the mean of its words."""
    words = [[MEANINGS.get(word, [0.01, 0.01, 1]) for word in words_of(text)] for text in texts]
    return np.array([np.mean(each, axis=0) for each in words], np.float32)


def topic_words(texts: list[str], classes: list[int], count: int = 8) -> list[list[str]]:
    return words_of_classes(texts, encode(texts), np.array(classes), encode, count)


def test_the_words_of_a_topic_are_those_of_no_other() -> None:
    texts = ["the card is lost", "the card was lost 7", "the rate is high", "The rates and the rate, 7"]
    found = topic_words([*texts, "the the the"], [0, 0, 1, 1, 2])
    assert found[0][:2] == ["card", "lost"]
    assert set(found[1][:2]) == {"rate", "rates"}
    assert found[2] == []
    assert not {"the", "is", "7"} & {word for words in found for word in words}  # everywhere, and no word
    assert [len(words) for words in topic_words(texts, [0, 0, 1, 1], 1)] == [1, 1]


def test_words_without_meaning_come_last_although_counts_favour_them() -> None:
    """ "since" is in more texts of its class than any other word, and in no text of the other: what counts see."""
    texts = ["since a card", "since the card", "since", *["the high rate of the day"] * 27]
    classes = [0] * 3 + [1] * 27
    vectors = np.array([[1, 0, 0]] * 3 + [[0, 1, 0]] * 27, np.float32)
    assert words_of_classes(texts, vectors, np.array(classes), encode)[0][0] == "card"
    same = words_of_classes(texts, vectors, np.array(classes), lambda words: np.tile([2.0, 1, 0], (len(words), 1)))
    assert same[0][0] == "since"  # the control: a model that does not tell words apart


def test_a_large_class_needs_more_than_one_text_with_a_word() -> None:
    texts = [*["the card"] * 30, "a lost card", *["the rate"] * 5, "a high rate"]
    found = topic_words(texts, [0] * 31 + [1] * 6)
    assert "lost" not in found[0]
    assert "high" in found[1]


def test_pairs_are_those_of_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_texts, "ROWS", 7)
    _, vectors, _ = blobs([20, 10, 5], spread=0.4)
    products = vectors @ vectors.T
    for threshold in (0.95, 0.5, -0.999):
        rows, others = np.nonzero(np.triu(products >= threshold, k=1))
        first, second, cosines, total = similar_pairs(vectors, threshold, 10_000)
        assert total == len(rows) == len(first)
        assert set(zip(first.tolist(), second.tolist(), strict=True)) == set(
            zip(rows.tolist(), others.tolist(), strict=True)
        )
        np.testing.assert_allclose(cosines, products[first, second], atol=1e-6)
        assert (np.diff(cosines) <= 0).all()
    every = np.sort(products[np.triu_indices(35, k=1)])[::-1]
    *_, cosines, total = similar_pairs(vectors, -0.999, 12)
    assert total == 35 * 34 / 2
    np.testing.assert_allclose(cosines, every[:12], atol=1e-6)
    for threshold, limit, told in ((1.5, 1, "1.5 is not a cosine"), (-1.0, 1, "is not a cosine"), (0.5, 0, "limit=0")):
        with pytest.raises(InputError, match=told):
            similar_pairs(vectors, threshold, limit)


def test_equal_texts_come_first_and_are_encoded_once() -> None:
    texts = ["A film", "good end", "a  film ", "the end", "GOOD END", "a film"]
    asked: list[list[int]] = []

    def encode(rows: list[int]):
        asked.append(rows)
        return directions(np.array([[1, 0], [1, 1], [0.9, 1]], np.float32))

    found = find_near_texts(texts, encode, 0.9, 10)
    assert found.same == [[0, 2, 5], [1, 4]]
    assert asked == [[0, 1, 3]]
    assert [pair[:2] for pair in found.pairs] == [(1, 3)]
    assert found.num_pairs == 1


@pytest.mark.parametrize("threshold", [0.95, 0.8, 0.3, -0.9])
def test_groups_are_those_of_one_text_after_another(threshold: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_texts, "ROWS", 7)
    _, vectors, _ = blobs([20, 10, 5], spread=0.4)
    products = (vectors @ vectors.T).astype(np.float64)
    leaders: list[int] = []
    expected = []
    for row in range(len(vectors)):
        near = max(leaders, key=lambda leader: products[row, leader], default=row)
        if leaders and products[row, near] >= threshold:
            expected.append(near)
        else:
            leaders.append(row)
            expected.append(row)
    firsts, cosines = firsts_of_groups(vectors, threshold)
    assert firsts.tolist() == expected
    np.testing.assert_allclose(cosines, products[np.arange(len(vectors)), firsts], atol=1e-5)


def test_the_two_nearest_are_those_of_brute_force() -> None:
    _, vectors, _ = blobs([20, 10, 5], spread=0.4)
    vectors = np.concatenate([vectors, vectors[:2]])  # equal vectors: a text is never its own neighbor
    products = vectors @ vectors.T
    np.fill_diagonal(products, -2.0)
    expected = np.sort(products, axis=1)[:, ::-1]
    first, second = nearest_two(vectors)
    np.testing.assert_allclose(first, expected[:, 0], atol=1e-5)
    np.testing.assert_allclose(second, expected[:, 1], atol=1e-5)
    assert [found.tolist() for found in nearest_two(vectors[:1])] == [[-1.0], [-1.0]]


def test_the_automatic_threshold_separates_pairs_from_texts_of_a_subject() -> None:
    """Texts of one subject have cosines near 0.6; a fifth of them have a copy with a cosine of 0.98."""
    chance = np.random.default_rng(0)
    subject = np.zeros(65)
    subject[0] = 1.2
    texts = directions(subject + np.pad(directions(chance.standard_normal((200, 64))), ((0, 0), (1, 0))))
    copies = directions(texts[:40] + 0.2 * directions(chance.standard_normal((40, 65))))
    vectors = np.concatenate([texts, copies])
    found = find_groups([f"text {number}" for number in range(240)], lambda rows: vectors[rows], None)
    assert 0.65 < found.threshold < 0.95
    group_of = {row: number for number, group in enumerate(found.groups) for row in group.rows}
    together = [number in group_of and group_of[number] == group_of.get(200 + number) for number in range(40)]
    assert sum(together) >= 36
    assert len(group_of) <= 80 + 40
    sparse = find_groups([f"text {number}" for number in range(200)], lambda rows: texts[rows], None)
    assert sum(len(group.rows) for group in sparse.groups) <= 50  # without copies there are few, not half of the texts
    with pytest.raises(InputError, match=f"needs {FEWEST} different texts, and there are 19"):
        auto_threshold(np.zeros(FEWEST - 1, np.float32), np.zeros(FEWEST - 1, np.float32))


def test_the_automatic_threshold_follows_its_rule() -> None:
    """Ten of a hundred texts have a near duplicate; the others are alike by chance, evenly from 0 to 0.5."""
    chance = np.linspace(0.0, 0.5, 100, dtype=np.float32)
    closest = np.concatenate([chance[:90], np.full(10, 0.85, np.float32)])
    found = auto_threshold(closest, chance - 0.1)
    assert np.quantile(chance - 0.1, 0.95) <= found <= 0.85
    assert (chance - 0.1 >= found).sum() <= 0.1 * (closest >= found).sum() or found == pytest.approx(
        np.quantile(chance - 0.1, 0.95)
    )
    several = np.full(100, 0.95, np.float32)  # every text has several duplicates
    assert auto_threshold(several, np.linspace(0.2, 0.94, 100, dtype=np.float32)) <= 0.95
    high = np.linspace(0.93, 0.99, 100, dtype=np.float32)  # a model whose cosines are all high
    assert auto_threshold(high, high) == pytest.approx(np.quantile(high, 0.95))


def test_same_texts_are_in_one_group_and_the_surest_groups_come_first() -> None:
    texts = ["A film", "good end", "a  film ", "the end", "GOOD END", "far", "a film"]
    vectors = directions(np.array([[1, 0, 0], [0, 1, 0.1], [0, 1, 0], [0, 0, 1]], np.float32))
    asked: list[list[int]] = []

    def encode(rows: list[int]):
        asked.append(rows)
        return vectors

    found = find_groups(texts, encode, 0.9)
    assert asked == [[0, 1, 3, 5]]
    assert [group.rows for group in found.groups] == [[0, 2, 6], [1, 3, 4]]
    assert found.groups[0].cosines == [1.0, 1.0, 1.0]
    assert found.groups[1].cosines == pytest.approx([1.0, float(vectors[1] @ vectors[2]), 1.0])
    assert find_groups(["a", "A"], lambda rows: vectors[:1], 0.9).nearest is None
