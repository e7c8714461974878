"""Hidden states of layers against transformers, against the model itself, and what cannot have any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel as TheirModel

import family_folders
from bertkit import AutoModel, AutoTokenizer, SentenceEncoder, pipeline
from bertkit.errors import InputError, TextError
from bertkit.insight.layer_vectors import LayerReader
from bertkit.tokenization.features import featurize_texts
from pipeline_helpers import save_tiny
from sentence_folders import pooling, sentence_folder

pytestmark = pytest.mark.slow

TEXTS = ["the film is good", "bad", "a very great scene , and not dull !", "", "the end is the start of it ."] * 3
NEAR = {"atol": 2e-5, "rtol": 1e-5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"), num_hidden_layers=3)


@pytest.mark.usefixtures("packs")
def test_the_states_are_those_of_transformers(folder: Path) -> None:
    reader = LayerReader(folder)
    theirs = TheirModel.from_pretrained(folder, attn_implementation="eager").eval()
    rows = reader.encode(TEXTS)
    states, vectors = list(reader.states(rows)), reader.vectors(rows)
    assert vectors.shape == (4, len(TEXTS), 32)
    for number, (ids, found) in enumerate(zip(rows, states, strict=True)):
        with torch.inference_mode():
            hidden = theirs(torch.from_numpy(ids.astype(np.int64))[None], output_hidden_states=True).hidden_states
        right = torch.cat(list(hidden)).numpy()
        assert found.shape == right.shape
        np.testing.assert_allclose(found, right, **NEAR)
        np.testing.assert_allclose(vectors[:, number], right.mean(axis=1), **NEAR)


def test_some_layers_in_any_order(folder: Path) -> None:
    reader = LayerReader(folder, pooling="cls")
    rows = reader.encode(TEXTS)
    every = reader.vectors(rows)
    np.testing.assert_array_equal(reader.vectors(rows, [-1, 0, 2]), every[[3, 0, 2]])
    assert next(reader.states(rows, [1])).shape == (1, len(rows[0]), 32)
    assert [reader.layer(number) for number in (-4, -1, 0, 3)] == [0, 3, 0, 3]
    for wrong in (4, -5):
        with pytest.raises(InputError, match=f"no layer {wrong}: it has 3"):
            reader.vectors(rows, [wrong])


@pytest.mark.parametrize("modes", [("mean",), ("cls", "max"), ("weightedmean", "lasttoken", "mean")])
def test_the_top_layer_pooled_as_the_model_says_is_its_vector(tmp_path: Path, modes: tuple[str, ...]) -> None:
    prompts = {"prompts": {"short": "a film : "}, "default_prompt_name": "short"}
    made = sentence_folder(tmp_path / "m", [pooling(*modes, include_prompt=False)], prompts)
    encoder, reader = SentenceEncoder(made), LayerReader(made)
    (top,) = reader.vectors(reader.encode(TEXTS[:3]), [-1])
    np.testing.assert_allclose(top, encoder.encode(TEXTS[:3]), atol=1e-4)
    assert not np.allclose(top, encoder.encode(TEXTS[:3], prompt=""), atol=1e-2)


def test_a_model_object_in_training_mode_is_read_in_eval_mode(folder: Path) -> None:
    model, tokenizer = AutoModel.from_pretrained(folder).train(), AutoTokenizer.from_pretrained(folder)
    found = LayerReader(model, tokenizer)
    other = LayerReader(folder)
    rows = featurize_texts(TEXTS, None, tokenizer)
    np.testing.assert_allclose(found.vectors(rows), other.vectors(rows), **NEAR)
    assert model.training


def test_states_of_many_texts_come_in_order_and_in_parts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = LayerReader(folder)
    rows = reader.encode(TEXTS)
    whole = list(reader.states(rows))
    monkeypatch.setattr("bertkit.insight.layer_vectors.TOKENS_AT_ONCE", 12)
    done: list[int] = []
    for found, right in zip(reader.states(rows, advance=done.append), whole, strict=True):
        np.testing.assert_allclose(found, right, **NEAR)
    assert sum(done) == len(TEXTS)
    assert len(done) > 3


def test_long_texts_are_refused_or_cut(folder: Path) -> None:
    reader = LayerReader(folder, max_length=5)
    with pytest.raises(TextError, match=r"text 2 \(counted from 0\) has 11 tokens"):
        reader.encode(["bad", "good", TEXTS[2]])
    rows = reader.encode(["bad", TEXTS[2]], truncation=True)
    assert rows.lengths.tolist() == [3, 5]
    with pytest.raises(InputError, match="max_length must be from 3 to 64"):
        LayerReader(folder, max_length=65)


@pytest.mark.parametrize("family", ["modernbert", "deberta-v2", "mpnet", "bart", "t5"])
def test_other_families(tmp_path: Path, family: str) -> None:
    family_folders.make(family, tmp_path / "m", tmp_path)
    if family in family_folders.WRITERS:
        with pytest.raises(InputError, match="an encoder-decoder"):
            LayerReader(tmp_path / "m")
        return
    reader = LayerReader(tmp_path / "m", pooling="mean")
    rows = reader.encode(["the river", "or the other", "e"])
    own = pipeline("feature-extraction", model=tmp_path / "m")(["the river", "or the other", "e"], pooling="mean")
    vectors = reader.vectors(rows)
    assert len(vectors) == reader.num_layers + 1
    np.testing.assert_allclose(vectors[-1], np.stack(own), atol=1e-4)
