"""Variants of texts: what may change in them, and what not."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bertkit import SentenceEncoder
from bertkit.training.distillation.augment import _neighbours, augmented
from embedding_data import WORDS, untrained


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    return SentenceEncoder(untrained(tmp_path_factory.mktemp("vectors") / "model"))


class Guesses:
    """A masked language model that always proposes the same, as the pipeline does."""

    class tokenizer:  # noqa: N801  # an attribute of the pipeline
        mask_token, sep_token, model_max_length = "[MASK]", "[SEP]", 100

        @staticmethod
        def tokenize(word):
            return [word] if word in WORDS[0] else [word, "##x"]

    def __init__(self):
        self.asked = []

    def __call__(self, texts, **options):
        assert options["top_k"] == 15
        self.asked += texts
        return [[{"token_str": each} for each in ("guess", "##piece", "9", "aq")] for _ in texts]


def test_words_are_replaced_and_all_else_stays(vectors):
    texts = [("The aq, bq: cq 99 don't -- dq!",), ("aq",), ("the of and",)]
    found = augmented(texts, 12, vectors=vectors, share=0.5, seed=3)
    assert len(found) == len(set(found)) > 5
    assert not set(found) & set(texts)
    shape = re.compile(r"The [a-d]q, [a-d]q: [a-d]q 99 don't -- [a-d]q!|[b-d]q")
    assert all(shape.fullmatch(text) for (text,) in found)
    assert found == augmented(texts, 12, vectors=vectors, share=0.5, seed=3)
    assert found != augmented(texts, 12, vectors=vectors, share=0.5, seed=4)


def test_the_share_of_words_that_change(vectors):
    texts = [(" ".join(WORDS[number]),) for number in range(16)]
    found = augmented(texts, 1, vectors=vectors, share=0.4)
    pairs = zip(texts, found, strict=True)
    changed = [a != b for (old,), (new,) in pairs for a, b in zip(old.split(), new.split(), strict=True)]
    assert 0.3 < np.mean(changed) < 0.5


def test_neighbours_are_those_of_the_vectors(vectors):
    words = [word for topic in WORDS[:3] for word in topic]
    near = _neighbours([" ".join(words)], vectors, 4, frozenset())
    units = vectors.encode(words)
    cosines = units @ units.T - 9 * np.eye(len(words))
    for number, word in enumerate(words):
        assert near[word] == [words[other] for other in (-cosines[number]).argsort(kind="stable")[:4]]


def test_words_of_one_token_are_guessed_in_their_place(vectors):
    masked = Guesses()
    found = augmented([("aq bq", "ar")], 40, vectors=vectors, masked=masked, share=0.6)
    assert masked.asked == ["[MASK] bq [SEP] aq bq", "[MASK] [SEP] ar"]
    first = {pair[0] for pair in found if pair[0] != "aq bq"}
    assert {pair[1] for pair in found if pair[0] != "aq bq"} == {"ar"}  # one text of a pair at a time
    assert first <= {"guess bq", "guess aq", "guess ar", "aq aq", "aq ar"}
    assert "guess bq" in first
    assert {pair[1] for pair in found if pair[0] == "aq bq"} <= {"guess", "aq"}
