"""Word vectors of a corpus: what stands among the same words is near, and what cannot be learned from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gensim.models import Word2Vec

from bertkit import errors
from bertkit.static import WordVectors, learn_words
from bertkit.training.word_vectors import word_corpus

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cats and dogs stand among the same words, stones among others."""
    draw, alive, dead = np.random.default_rng(0), ("eats", "sleeps"), ("lies", "falls")
    lines = []
    for _ in range(400):
        word, verbs = [("Cat", alive), ("dog", alive), ("stone", dead)][draw.integers(3)]
        lines.append(f"{verbs[draw.integers(2)]} {word} {verbs[draw.integers(2)]}")
    file = tmp_path_factory.mktemp("corpus") / "text.txt"
    file.write_text("\n\n".join([*lines, "rare"]) + "\n")
    return file


def check(words: WordVectors) -> None:
    cat, dog, stone = (words[word] / np.linalg.norm(words[word]) for word in ("cat", "dog", "stone"))
    assert cat @ dog > cat @ stone + 0.3
    assert "rare" not in words


def test_words_of_the_same_company_are_near(corpus: Path) -> None:
    found = learn_words(corpus, dimensions=4)
    check(found)
    np.testing.assert_array_equal(found.vectors, learn_words(corpus, dimensions=4).vectors)
    assert "Cat" in learn_words(corpus, dimensions=4, cased=True)
    assert len(learn_words(corpus, dimensions=4, max_vocabulary=3)) == 3


def test_skip_gram_is_that_of_gensim(corpus: Path) -> None:
    found = learn_words(corpus, method="skip-gram", dimensions=8, window=2, epochs=3, seed=1)
    sentences = [line.lower().split() for line in corpus.read_text().split("\n\n")]
    sentences[-1] = []  # the rare word
    right = Word2Vec(sentences, vector_size=8, window=2, min_count=1, sg=1, negative=5, epochs=3, seed=1, workers=1)
    assert set(found.words) == set(right.wv.index_to_key)
    np.testing.assert_allclose(found.vectors, [right.wv[word] for word in found.words], atol=1e-6)
    assert not np.allclose(
        found.vectors, learn_words(corpus, method="skip-gram", dimensions=8, window=2, epochs=3).vectors
    )


@pytest.mark.parametrize("text", ["alone " * 50, "each word once here"])
def test_a_corpus_with_fewer_than_two_words(tmp_path: Path, text: str) -> None:
    (tmp_path / "text.txt").write_text(text)
    with pytest.raises(errors.DataError, match="at least two: give more text"):
        learn_words(tmp_path / "text.txt")


def test_an_empty_corpus(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n")
    with pytest.raises(errors.DataError):
        learn_words(tmp_path / "text.txt")


def test_memory_is_bounded(corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(word_corpus, "MAX_DIFFERENT", 3)
    assert len(learn_words(corpus, dimensions=2)) == 3
    assert "words came after 3 different ones, and count as unknown" in capsys.readouterr().err
    monkeypatch.setattr(word_corpus, "MAX_WORDS", 30)
    learn_words(corpus, dimensions=2)
    assert "stopped after 30 words" in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["dimensions", "window", "min_count", "max_vocabulary", "epochs"])
def test_settings_are_counts(corpus: Path, setting: str) -> None:
    with pytest.raises(errors.ConfigError, match=f"{setting} must be a whole number from 1"):
        learn_words(corpus, **{setting: 0})
