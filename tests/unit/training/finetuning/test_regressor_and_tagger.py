"""BertRegressor and BertTagger: what they learn, how they are scored, saved and refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seqeval.metrics
import torch
import transformers
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score

from bertkit import BertRegressor, BertTagger, pipeline
from bertkit.errors import CheckpointError, ConfigError, InputError
from finetune_data import BAD, GOOD, labelled_texts, tiny_start

pytestmark = pytest.mark.slow

ROWS = labelled_texts(96, seed=2)
TEXTS = [text for text, _ in ROWS]
WORDS = [text.split() for text in TEXTS]
TAGS = [["B-OP" if word in (*GOOD, *BAD) else "O" for word in words] for words in WORDS]
SCORES = np.array([100.0 + 500 * label for _, label in ROWS])
LEARNS: dict[str, Any] = {"learning_rate": 1e-2, "epochs": 20, "batch_size": 16, "max_length": 24}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_start(tmp_path_factory.mktemp("start"), width=32))


@pytest.fixture(scope="module")
def regressor(start: str) -> BertRegressor:
    return BertRegressor(start, **LEARNS).fit(TEXTS, SCORES)


@pytest.fixture(scope="module")
def tagger(start: str) -> BertTagger:
    return BertTagger(start, **LEARNS).fit(WORDS, TAGS)


# --------------------------------------------------------------------------------------------------- numbers


def test_numbers_of_any_size_are_learned(regressor: BertRegressor) -> None:
    assert regressor.score(TEXTS, SCORES) == r2_score(SCORES, regressor.predict(TEXTS)) > 0.8
    weights = np.arange(96)
    assert regressor.score(TEXTS, SCORES, weights) == r2_score(SCORES, regressor.predict(TEXTS), sample_weight=weights)


def test_another_unit_is_the_same_model(start: str) -> None:
    quick = {**LEARNS, "epochs": 1}
    plain = BertRegressor(start, **quick).fit(TEXTS, SCORES).predict(TEXTS)
    scaled = BertRegressor(start, **quick).fit(TEXTS, SCORES / 1000 - 7).predict(TEXTS)
    np.testing.assert_allclose(scaled, plain / 1000 - 7, atol=1e-3)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_saved_regressor_and_its_pipeline_predict_the_same(start: str, tmp_path: Path, frozen: bool) -> None:
    model = BertRegressor(start, **{**LEARNS, "epochs": 2}, freeze_encoder=frozen).fit(TEXTS, SCORES)
    model.save_pretrained(tmp_path)
    expected = model.predict(TEXTS)
    for again in (BertRegressor.from_pretrained(tmp_path), pickle.loads(pickle.dumps(model))):
        np.testing.assert_allclose(again.predict(TEXTS), expected, rtol=1e-5)
    rows = pipeline("text-classification", model=tmp_path, device="cpu", function_to_apply="none")(TEXTS)
    np.testing.assert_allclose([row["score"] for row in rows], expected, rtol=1e-3)
    with pytest.raises(CheckpointError, match=r"tagger\.json does not exist"):
        BertTagger.from_pretrained(tmp_path)


def test_a_constant_number_is_predicted(start: str) -> None:
    model = BertRegressor(start, **{**LEARNS, "epochs": 3}).fit(TEXTS, [5.0] * 96)
    np.testing.assert_allclose(model.predict(TEXTS), 5.0, atol=1.5)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0] * 95, "one number for each of the 96 texts"),
        ([1.0, None] * 48, r"y has no number in row 1 \(counted from 0\)"),
        ([1.0] * 95 + [float("nan")], "y has no number in row 95"),
        ([1.0] * 95 + [float("inf")], "y has inf in row 95"),
        (["good"] * 96, "row 0 .* is 'good'. For labels use BertClassifier"),
        (np.ones((96, 2)), "MultiOutputRegressor"),
        (None, "requires y to be passed"),
    ],
)
def test_wrong_numbers_are_refused(start: str, y: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        BertRegressor(start).fit(TEXTS, y)


# ------------------------------------------------------------------------------------------------------ tags


def test_tags_are_learned_and_scored_as_seqeval_does(tagger: BertTagger) -> None:
    found = [list(tags) for tags in tagger.predict(WORDS)]
    assert tagger.score(WORDS, TAGS) > 0.9
    assert tagger.score(WORDS, TAGS) == pytest.approx(seqeval.metrics.f1_score(TAGS, found))
    assert [len(tags) for tags in found] == [len(words) for words in WORDS]
    assert tagger.classes_.tolist() == ["O", "B-OP", "I-OP"]
    assert tagger.predict(TEXTS).tolist() == found, "a text is its words"


def test_tags_of_every_scheme_are_the_same_entities(start: str) -> None:
    quick = {**LEARNS, "epochs": 2}
    bio = BertTagger(start, **quick).fit(WORDS, TAGS)
    for other in ("S-OP", "U-OP"):
        tags = [[other if tag == "B-OP" else "O" for tag in row] for row in TAGS]
        model = BertTagger(start, **quick).fit(WORDS, tags)
        assert model.predict(WORDS).tolist() == bio.predict(WORDS).tolist()
        assert model.score(WORDS, tags) == bio.score(WORDS, TAGS)


def test_a_saved_tagger_and_its_pipeline_tag_the_same(tagger: BertTagger, tmp_path: Path) -> None:
    tagger.save_pretrained(tmp_path)
    expected = tagger.predict(WORDS).tolist()
    for again in (BertTagger.from_pretrained(tmp_path), pickle.loads(pickle.dumps(tagger))):
        assert again.predict(WORDS).tolist() == expected
        assert again.classes_.tolist() == tagger.classes_.tolist()
    pipe = pipeline("token-classification", model=tmp_path, device="cpu", aggregation_strategy="first")
    named = {place for place, tag in enumerate(expected[0]) if tag != "O"}
    spans = [(row["start"], row["end"]) for row in pipe(TEXTS[0])]
    starts = np.cumsum([0, *(len(word) + 1 for word in WORDS[0])])
    assert {n for n in range(len(WORDS[0])) if any(a <= starts[n] < b for a, b in spans)} == named


def test_sentences_without_words_and_of_any_length(tagger: BertTagger) -> None:
    long = ["good", "film"] * 40
    found = tagger.predict([[], long, "", ["bad"]])
    assert [len(tags) for tags in found] == [0, 80, 0, 1]
    assert tagger.score([[], ["good"]], [[], ["B-OP"]]) in (0.0, 1.0)


def test_taggers_are_searched_and_cross_validated(start: str) -> None:
    quick = BertTagger(start, **{**LEARNS, "epochs": 1})
    assert cross_val_score(quick, WORDS, TAGS, cv=2).shape == (2,)
    search = GridSearchCV(quick, {"learning_rate": [1e-6, 1e-2]}, cv=2).fit(WORDS, TAGS)
    assert search.best_params_["learning_rate"] in (1e-6, 1e-2)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([["a"], ["b", "c"]], [["O"], ["O"]], r"1 tag in row 1 \(counted from 0\) for 2 words: 'b c'"),
        ([["a"], ["b"]], [["O"]], "tags for each of the 2 sentences, got 1"),
        ([["a"], ["b"]], [["O"], ["O"]], "every word of y is tagged 'O'"),
        ([["a"], ["b"]], [["O"], [1]], r"row 1 \(counted from 0\) is \[1\]"),
        ([["a"], ["b"]], ["O", "B-PER"], "lists of tags as texts"),
        ([["a"], None], [["O"], ["B-PER"]], "X has no sentence in row 1"),
        ([["a"], [3]], [["O"], ["B-PER"]], r"row 1 \(counted from 0\) is \[3\]"),
        (["a", "b"], None, "requires y to be passed"),
        ([], [], "X is empty"),
    ],
)
def test_wrong_sentences_and_tags_are_refused(start: str, X: Any, y: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        BertTagger(start).fit(X, y)


def test_a_tagger_has_no_classifiers_parameters() -> None:
    with pytest.raises(ConfigError, match="few_shot"):
        BertTagger(few_shot=True)  # type: ignore[call-arg]


def test_numbers_that_float32_does_not_hold_are_refused() -> None:
    with pytest.raises(InputError, match=r"y has 1e\+39 in row 1 .*beyond 1e\+18"):
        BertRegressor().fit(["a", "b"], [1.0, 1e39])


def test_probabilities_of_words_are_those_of_their_first_piece(tagger: BertTagger, tmp_path: Path) -> None:
    sentences = [WORDS[0], [], [*WORDS[1], "goodxq"]]
    found = tagger.predict_proba(sentences)
    assert [each.shape for each in found] == [(len(words), len(tagger.classes_)) for words in sentences]
    for proba, tags in zip(found, tagger.predict(sentences), strict=True):
        assert tagger.classes_[proba.argmax(axis=1)].tolist() == tags
    tagger.save_pretrained(tmp_path)
    words = transformers.AutoTokenizer.from_pretrained(tmp_path)
    model = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path).eval()
    order = [model.config.label2id[name] for name in tagger.classes_]
    for number in (0, 2):
        encoded = words(sentences[number], is_split_into_words=True, return_tensors="pt")
        first = [encoded.word_ids().index(word) for word in range(len(sentences[number]))]
        with torch.inference_mode():
            theirs = model(**encoded).logits[0, first].softmax(-1)[:, order].numpy()
        np.testing.assert_allclose(found[number], theirs, atol=1e-4)


def test_texts_have_no_number_of_features_as_in_scikit_learn(regressor: BertRegressor, tagger: BertTagger) -> None:
    assert not hasattr(TfidfVectorizer().fit(TEXTS), "n_features_in_")
    for estimator in (regressor, tagger):
        assert not hasattr(estimator, "n_features_in_")
        with pytest.raises(AttributeError, match="texts have no columns, and TfidfVectorizer has no such attribute"):
            estimator.n_features_in_  # noqa: B018
