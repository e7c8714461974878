"""Words as BM25 counts them, in scripts whose letters carry marks."""

from __future__ import annotations

import pytest

from bertkit.metrics.bm25 import words_of


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
