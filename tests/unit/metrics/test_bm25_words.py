"""Words as BM25 counts them, in scripts whose letters carry marks."""

from __future__ import annotations

import numpy as np
import pytest

from bertkit.metrics.bm25 import BM25, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat's 2 toys", ["the", "cat", "s", "2", "toys"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("caf\u0065\u0301 caf\u00e9", ["caf\u00e9", "caf\u00e9"]),
        ("İstanbul", ["istanbul"]),
        ("東京 タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("snake_case", ["snake_case"]),
    ],
)
def test_a_mark_belongs_to_its_letter(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize("k", [0, 1, 3, 7, 40, 200])
def test_the_best_are_those_of_a_sort_of_all(k: int) -> None:
    """Few different documents, so that most scores are ties, whose order is that of the documents."""
    chance = np.random.default_rng(0)
    index = BM25([" ".join(chance.choice(["a", "b", "c", "d"], 2)) for _ in range(60)])
    for query in ("a", "a b", "d d c", "nowhere"):
        scores = index.scores(query)
        expected = sorted((-score, number) for number, score in enumerate(scores.tolist()) if score)[:k]
        numbers, best = index.search(query, k)
        assert [(-score, number) for number, score in zip(numbers.tolist(), best.tolist(), strict=True)] == expected
        assert best.dtype == np.float64
