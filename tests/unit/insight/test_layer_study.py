"""Probes against scikit-learn, their controls, word vectors against transformers, and what cannot be studied."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from transformers import AutoModel as TheirModel

from bertkit import AutoModel, AutoTokenizer, visualize
from bertkit.errors import InputError
from bertkit.insight.layer_probes import INVERSE_PENALTY, MOST_LABELS, divide, probe, word_vectors
from bertkit.insight.layer_study import LayerStudy
from bertkit.insight.layer_vectors import LayerReader
from pipeline_helpers import WORDS, save_tiny

pytestmark = pytest.mark.slow

NEUTRAL = [word for word in WORDS if word.isalpha() and word not in ("good", "bad")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"), num_hidden_layers=3)


@pytest.fixture(scope="module")
def texts() -> tuple[list[str], list[str]]:
    """Texts that have one of two words, and which one."""
    draw = random.Random(0)
    labels = [draw.choice(["good", "bad"]) for _ in range(120)]
    found = []
    for label in labels:
        words = [*draw.sample(NEUTRAL, 4), label]
        draw.shuffle(words)
        found.append(" ".join(words))
    return found, labels


@pytest.fixture(scope="module")
def study(folder: Path, texts: tuple[list[str], list[str]]) -> LayerStudy:
    found: LayerStudy = visualize.layers(*texts, folder)
    return found


def test_labels_are_found_and_controls_are_not(study: LayerStudy) -> None:
    (scores,) = study.probes
    assert [each.layer for each in scores] == [0, 1, 2, 3]
    assert scores[0].accuracy > 0.9
    assert scores[0].control < 0.75
    assert all(each.selectivity == each.accuracy - each.control for each in scores)
    assert study.majority is not None
    assert 0.3 < study.majority < 0.7
    assert (study.train, study.dev, study.labels, study.examples) == (96, 24, 2, 120)


def test_a_probe_is_that_of_scikit_learn(folder: Path, texts: tuple[list[str], list[str]]) -> None:
    reader = LayerReader(folder)
    vectors = reader.vectors(reader.encode(texts[0]))
    vectors[1, :, 3] = 2.5  # a number without a spread
    examples = divide(texts[1], np.arange(120), None, 0)
    for layer, score in enumerate(probe(vectors, examples)):
        x, y, dev = vectors[layer].astype(np.float64), examples.labels, examples.dev
        theirs = make_pipeline(StandardScaler(), LogisticRegression(C=INVERSE_PENALTY, max_iter=300))
        right = theirs.fit(x[~dev], y[~dev]).score(x[dev], y[dev])
        assert score.accuracy == pytest.approx(right, abs=1 / dev.sum() + 1e-9)  # at most one text by rounding
        middle = (score.accuracy + 1.96**2 / (2 * dev.sum())) / (1 + 1.96**2 / dev.sum())  # of Wilson's interval
        assert (score.low + score.high) / 2 == pytest.approx(middle, abs=1e-4)
        assert score.low < score.accuracy <= score.high + 1e-9


def test_words_are_in_one_part_with_their_sentence_and_controls_go_by_word() -> None:
    owners = np.repeat(np.arange(50), 4)
    words = [NEUTRAL[n % 7] for n in range(200)]
    labels: list[str | None] = ["xyz"[n % 3] for n in range(200)]
    labels[5] = None
    found = divide(labels, owners, words, 1)
    assert len(found.kept) == 199
    assert found.notes == ("1 without a label are left out of the probes",)
    for text in range(50):
        assert len(set(found.dev[owners[found.kept] == text].tolist())) == 1
    assert found.dev.sum() == pytest.approx(0.2 * 199, abs=1)
    pairs = {(words[place], control) for place, control in zip(found.kept, found.controls.tolist(), strict=True)}
    assert len(pairs) == 7
    shuffled = divide(labels, owners, None, 1)
    assert sorted(shuffled.controls.tolist()) == sorted(shuffled.labels.tolist())
    assert (shuffled.controls != shuffled.labels).any()
    other = divide(labels, owners, words, 2)
    assert (other.dev != found.dev).any()


def test_a_thousand_labels() -> None:
    labels = [f"label {n % 1000}" for n in range(2050)] + ["label 1"] * 10
    found = divide(labels, np.arange(len(labels)), None, 0)
    assert found.num_labels == MOST_LABELS
    assert found.labels.max() == MOST_LABELS - 1
    assert "the 100 most frequent of 1,000 labels are told apart; 1,8" in found.notes[0]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "b"] * 5, "20 examples and two labels, got 10 examples with 2 labels"),
        (["a"] * 30, "got 30 examples with 1 label"),
        ([None] * 30, "got 0 examples with 0 labels"),
        (["a"] * 30 + ["b"], "one label only"),
    ],
)
def test_labels_that_teach_nothing(labels: list[str | None], message: str) -> None:
    def divide_often() -> None:
        for seed in range(40):  # the one "b" is in dev for some of them
            divide(labels, np.arange(len(labels)), None, seed)

    with pytest.raises(InputError, match=message):
        divide_often()


def test_the_vector_of_a_word_is_that_of_its_first_piece(folder: Path) -> None:
    sentences = [["the", "films", "\u200b", "are", "good"], ["bad"], [*["scene"] * 40, "dull"] * 2]
    reader = LayerReader(folder, pooling="mean")
    vectors, there = word_vectors(reader, sentences)
    assert vectors.shape == (4, 5 + 1 + 82, 32)
    assert np.flatnonzero(~there).tolist() == [2]
    theirs = TheirModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer("the films \u200b are good", return_tensors="pt")
    with torch.inference_mode():
        hidden = torch.stack(theirs(**inputs, output_hidden_states=True).hidden_states)[:, 0]
    for word, character in ((0, 0), (1, 4), (3, 12), (4, 16)):
        right = hidden[:, inputs.char_to_token(0, character)].numpy()
        np.testing.assert_allclose(vectors[:, word], right, atol=1e-4)
    # Of the long sentence, the same word in two windows has other neighbours.
    assert there[6:].all()
    assert not np.allclose(vectors[3, 6 + 40], vectors[3, 6 + 81], atol=1e-3)


def test_words_with_tags(folder: Path) -> None:
    draw = random.Random(0)
    sentences = [draw.choices(NEUTRAL, k=6) for _ in range(60)]
    tags = [["X" if word < "g" else "Y" for word in words] for words in sentences]
    found = visualize.layers(sentences, tags, folder)
    (scores,) = found.probes
    assert (found.unit, found.examples, found.of) == ("words", 360, 60)
    # A word is its label here, and its control label as well: the probe knows it by heart.
    assert scores[0].accuracy > 0.95
    assert scores[0].control > 0.95


def test_layers_of_two_models(folder: Path, texts: tuple[list[str], list[str]], tmp_path: Path) -> None:
    other = save_tiny(tmp_path / "other", num_hidden_layers=2, hidden_size=16)
    found = visualize.layers(texts[0], None, folder, other=other)
    assert np.array(found.similarity).shape == (4, 3)
    names = tuple("/".join(model.parts[-2:]) for model in (folder, other))
    assert (found.probes, found.majority, found.models) == ((), None, names)
    model = AutoModel.from_pretrained(folder)
    with torch.no_grad():  # rotates the vectors of the embeddings, and changes their size
        rotation = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(0)))[0]
    reader = LayerReader(folder)
    vectors = reader.vectors(reader.encode(texts[0]))
    turned = 3 * vectors @ rotation.numpy()
    from bertkit.metrics.layer_similarity import layer_similarity

    own = np.array(visualize.layers(texts[0], None, model, tokenizer=AutoTokenizer.from_pretrained(folder)).similarity)
    np.testing.assert_allclose(np.diag(own), 1.0, atol=1e-6)
    np.testing.assert_allclose(layer_similarity(vectors, turned), own, atol=1e-4)
    assert own[0, 3] < 0.99
    assert len(visualize.layers(*texts, folder, other=folder).probes) == 2


def test_models_have_names_that_tell_them_apart(
    folder: Path, texts: tuple[list[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    here = visualize.layers(texts[0][:9], None, ".")
    assert here.models == ("/".join(folder.parts[-2:]),)
    model, words = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    two = visualize.layers(texts[0][:9], None, model, tokenizer=words, other=model, other_tokenizer=words)
    assert two.models == ("BertModel", "BertModel")
    said = two.render().splitlines()
    assert said[0] == "9 texts for the first model and the second model"
    assert said[-1 - len(two.similarity)] == "with layers 0, 1, ... of the second model"


def test_a_layer_in_which_all_texts_are_the_same(folder: Path, texts: tuple[list[str], list[str]]) -> None:
    found = visualize.layers(*texts, folder, pooling="cls")
    assert found.similarity[0] == (None,) * 4
    assert found.similarity[1][1] == pytest.approx(1.0)
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.figure().axes
    assert found.probes[0][0].accuracy == found.majority


def test_what_is_shown(study: LayerStudy, tmp_path: Path) -> None:
    said = json.loads(study.save(tmp_path / "x.json").read_text())
    assert said["probes"][0][2]["selectivity"] == study.probes[0][2].selectivity
    assert study.save(tmp_path / "x.png").stat().st_size > 5000
    assert "<svg" in study.page()
    curves, heat, _ = study.figure().axes
    line = curves.get_lines()[0]
    np.testing.assert_allclose(line.get_ydata(), [each.accuracy for each in study.probes[0]])
    assert [text.get_text() for text in heat.texts].count("1") >= 4
    assert f"{study.probes[0][1].accuracy:.4f}" in study.render()
    assert "most frequent label" in study.render()


def test_sampling_is_said_and_repeated(folder: Path, texts: tuple[list[str], list[str]]) -> None:
    found, same = (visualize.layers(*texts, folder, examples=50, seed=3) for _ in range(2))
    assert found == same
    assert found.examples == 50
    assert found.notes == ("50 of 120 texts were sampled (seed 3)",)
    assert visualize.layers(*texts, folder, examples=50, seed=4).similarity != found.similarity
    words = [text.split() for text in texts[0]]
    assert visualize.layers(words, None, folder, examples=52).examples == 55  # whole sentences
    few = visualize.layers(texts[0][:3], None, folder)
    assert (few.similarity, few.notes) == ((), ("3 examples are too few to compare layers: 4 are needed",))
    long = visualize.layers(["good " * 90, *texts[0]], None, folder)
    assert long.notes == ("1 text had more tokens than are read, and was cut",)


def test_what_cannot_be_studied(folder: Path, texts: tuple[list[str], list[str]]) -> None:
    cases: list[tuple[tuple[Any, ...], str]] = [
        (([], None, folder), "no texts"),
        ((texts[0], texts[1][:5], folder), "got 5 labels for 120 texts"),
        (([["a", "b"]], [["x"]], folder), "sentence 0 .* has 2 words and 1 tags"),
        ((*texts, None), "give a model"),
        (("a single text", None, folder), "give several texts, not one: 'a single text'"),
    ]
    for arguments, message in cases:
        with pytest.raises(InputError, match=message):
            visualize.layers(*arguments)
    with pytest.raises(InputError, match="pooling='cls' has no effect: a word has"):
        visualize.layers([["a", "film"]] * 30, None, folder, pooling="cls")
    with pytest.raises(InputError, match="examples must be from 1"):
        visualize.layers(*texts, folder, examples=0)
