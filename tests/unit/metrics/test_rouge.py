"""ROUGE beside the ``rouge-score`` package."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from bertkit.metrics.rouge import ROUGE, Overlap, rouge

PEER = RougeScorer(list(ROUGE), use_stemmer=False)
#: Few words, so that many subsequences are equally long.
TEXTS = st.text("ab1 \n.É\u212a", max_size=40)


def difference(written: str, reference: str) -> float:
    """The largest difference to the package in any number."""
    theirs = PEER.score(reference, written)
    ours = rouge(written, reference)
    return max(abs(a - b) for name in ROUGE for a, b in zip(ours[name], theirs[name], strict=True))


@given(TEXTS, TEXTS)
def test_equal_to_the_package(written: str, reference: str) -> None:
    assert difference(written, reference) < 1e-12


def test_equal_on_long_texts() -> None:
    chance = random.Random(0)
    words = ["the", "The", "cat", "don't", "3.5", "naïve", "x_y", "sat", "\n", "\n", "--", "İstanbul", "mat"]
    for _ in range(60):
        texts = [" ".join(chance.choices(words, k=chance.randint(0, 120))) for _ in range(2)]
        assert difference(*texts) < 1e-12


@pytest.mark.parametrize(
    ("written", "reference"),
    [("", ""), ("a", ""), ("", "a"), ("\n\n", "a\n"), ("a", "a"), ("日本語", "日本語"), ("a b", "b a"), ("...", "a b")],
)
def test_edges(written: str, reference: str) -> None:
    assert difference(written, reference) < 1e-12


def test_by_hand() -> None:
    """Lin (2004), section 3: "police killed the gunman" and its variants."""
    reference = "police killed the gunman"
    assert rouge("police kill the gunman", reference)["rougeL"] == Overlap(0.75, 0.75, 0.75)
    assert rouge("the gunman kill police", reference)["rougeL"] == Overlap(0.5, 0.5, 0.5)
    assert rouge("the gunman police killed", reference)["rougeL"] == Overlap(0.5, 0.5, 0.5)
    assert rouge("the gunman police killed", reference)["rouge2"].recall == pytest.approx(2 / 3)


def test_the_comparison_can_fail() -> None:
    """A control: the measure by lines is another than that of the whole text."""
    found = rouge("c d\na b", "a b\nc d")
    assert found["rougeLsum"].f1 == 1.0
    assert found["rougeL"].f1 == 0.5
