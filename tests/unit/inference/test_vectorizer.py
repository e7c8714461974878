"""BertVectorizer: vectors of SentenceEncoder as a transformer of scikit-learn."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from bertkit import BertVectorizer, SentenceEncoder
from bertkit.errors import CheckpointError, ConfigError, InputError
from pipeline_helpers import save_tiny

TEXTS = ["a good film", "a bad film is not great", "dull", "a scene of the end"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("encoder")))


@pytest.mark.parametrize("options", [{}, {"normalize": True}, {"dimensions": 8}, {"prompt": "the "}, {"max_length": 4}])
@pytest.mark.filterwarnings("ignore:.*longer than 4 word pieces")
def test_vectors_are_those_of_the_sentence_encoder(folder: str, options: dict[str, Any]) -> None:
    vectorizer = BertVectorizer(folder, **options)
    expected = SentenceEncoder(folder).encode(TEXTS, truncation=True, **options)
    np.testing.assert_array_equal(vectorizer.fit_transform(TEXTS), expected)
    np.testing.assert_array_equal(vectorizer.encode(TEXTS), expected)
    np.testing.assert_allclose(vectorizer.encode(TEXTS[0]), expected[0], atol=1e-5)
    assert vectorizer.get_feature_names_out().tolist() == [f"bertvectorizer{n}" for n in range(expected.shape[1])]


def test_pooling(folder: str) -> None:
    pooled = SentenceEncoder(folder).pipeline(TEXTS, pooling="cls")
    np.testing.assert_array_equal(BertVectorizer(folder, pooling="cls").transform(TEXTS), np.stack(pooled))
    assert len(BertVectorizer(folder, pooling="cls").get_feature_names_out()) == 32
    with pytest.raises(InputError, match="pooling='sum' is unknown"):
        BertVectorizer(folder, pooling="sum").transform(TEXTS)  # type: ignore[arg-type]


def test_pairs_are_read_together(folder: str) -> None:
    pairs = [(TEXTS[0], TEXTS[1]), (TEXTS[2], TEXTS[3])]
    found = BertVectorizer(folder).transform(pairs)
    expected = np.stack(SentenceEncoder(folder).pipeline([list(pair) for pair in pairs], pooling="model"))
    np.testing.assert_array_equal(found, expected)
    assert found.shape == (2, 32)


def test_a_pipeline_of_it_alone_is_fitted_as_it_is_made(folder: str) -> None:
    """BERTopic takes a pipeline, and calls ``transform`` of a fitted one."""
    pipe = make_pipeline(BertVectorizer(folder, batch_size=2))
    check_is_fitted(pipe)
    np.testing.assert_array_equal(pipe.transform(TEXTS), BertVectorizer(folder).transform(TEXTS))


def test_normalized_embeddings_have_length_1(folder: str) -> None:
    vectors = BertVectorizer(folder).encode(TEXTS, normalize_embeddings=True, batch_size=2, show_progress_bar=False)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_texts_that_are_cut_are_told(folder: str) -> None:
    with pytest.warns(UserWarning, match="2 of 4 texts are longer than 6 word pieces and truncated"):
        BertVectorizer(folder, max_length=6).transform(TEXTS)


def test_a_changed_parameter_counts_at_the_next_call(folder: str, tmp_path: Path) -> None:
    other = str(save_tiny(tmp_path, hidden_size=16))
    vectorizer = BertVectorizer(folder).fit(TEXTS)
    assert vectorizer.transform(TEXTS).shape == (4, 32)
    assert vectorizer.set_params(model=other).transform(TEXTS).shape == (4, 16)
    assert clone(vectorizer).set_params(dimensions=4).transform(TEXTS).shape == (4, 4)


def test_a_pickle_holds_the_name_of_the_model(folder: str, tmp_path: Path) -> None:
    vectorizer = BertVectorizer(folder).fit(TEXTS)
    pickled = pickle.dumps(vectorizer)
    assert len(pickled) < 2_000
    np.testing.assert_array_equal(pickle.loads(pickled).transform(TEXTS), vectorizer.transform(TEXTS))
    with pytest.raises(CheckpointError, match="gone"):
        pickle.loads(pickle.dumps(BertVectorizer(str(tmp_path / "gone")))).transform(TEXTS)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("one text", "got one string"),
        ([], "X is empty"),
        (["a", None], "X has no text in row 1"),
        (np.ones((2, 2)), "numbers, where the model reads the texts themselves"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(folder: str, X: Any, message: str) -> None:
    for call in (BertVectorizer(folder).fit, BertVectorizer(folder).transform):
        with pytest.raises(InputError, match=message):
            call(X)


@pytest.mark.parametrize(
    ("name", "message"),
    [("ngram_range", "TfidfVectorizer"), ("max_features", "write dimensions="), ("modle", "'model'")],
)
def test_a_parameter_of_another_vectorizer_is_answered_with_ours(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BertVectorizer(**{name: 1})
    with pytest.raises(AttributeError, match=r"write get_feature_names_out\(\)"):
        _ = BertVectorizer().vocabulary_
