"""Word vectors out of an encoder: against the encoder, scikit-learn's PCA, and sentence-transformers' reading."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sklearn.decomposition import PCA
from transformers import AutoModel as TheirModel

import family_folders
from bertkit import AutoTokenizer, SentenceEncoder, errors
from bertkit.checkpoints.static_folder import static_folder, write_static_folder
from bertkit.static import WordVectors, distill_words
from bertkit.training.word_vectors.distilled_words import principal_components, used_tokens, zipf_weights
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow

TEXTS = ["the film is good", "bad", "a very great scene , and not dull !", "", "☃ the end"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def folder(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "words"
    found = distill_words(encoder, out, dimensions=8)
    assert (found.dimensions, 0 < found.variance < 1) == (8, True)
    assert found.bytes == sum(file.stat().st_size for file in out.iterdir())
    return out


def test_a_token_has_the_weighted_components_of_its_text_alone(encoder: Path, folder: Path) -> None:
    """Against transformers and scikit-learn; products, which the signs of components do not change."""
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    used = used_tokens(tokenizer)
    assert set(range(len(tokenizer))) - set(used.tolist()) == set(tokenizer.all_special_ids)
    table = static_folder(folder).read_table()  # type: ignore[union-attr]
    assert not table[tokenizer.all_special_ids].any()
    rows = [[tokenizer.cls_token_id, token, tokenizer.sep_token_id] for token in used.tolist()]
    with torch.inference_mode():
        alone = TheirModel.from_pretrained(encoder).eval()(torch.tensor(rows)).last_hidden_state.mean(1).numpy()
    right = PCA(8, svd_solver="full").fit_transform(alone) * zipf_weights(len(used), 1e-4)[:, None]
    products = table[used] @ table[used].T
    np.testing.assert_allclose(products, right @ right.T, atol=2e-3 * np.abs(products).max())  # 16 bits


def test_components_are_those_of_scikit_learn() -> None:
    x = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32) * [5, 3, 1, 1, 0.5, 0.1]
    found, share = principal_components(x.astype(np.float32), 3)
    right = PCA(3).fit(x)
    np.testing.assert_allclose(np.abs(found), np.abs(right.transform(x)), atol=1e-4)
    assert share == pytest.approx(right.explained_variance_ratio_.sum(), abs=1e-5)
    assert principal_components(np.ones((4, 3), np.float32), 2)[1] == 1.0
    assert principal_components(x.astype(np.float32), 100)[0].shape == (50, 6)


def test_weights_by_frequency() -> None:
    shares = np.array([1 / 2, 1 / 3, 1 / 4]) / (1 / 2 + 1 / 3 + 1 / 4)
    np.testing.assert_allclose(zipf_weights(3, 0.01), 0.01 / (0.01 + shares), rtol=1e-6)
    np.testing.assert_array_equal(zipf_weights(3, None), np.ones(3))


def test_sentence_transformers_reads_the_folder(folder: Path) -> None:
    known = TEXTS[:3]  # unknown words have a vector there
    right = SentenceTransformer(str(folder)).encode(known)
    np.testing.assert_allclose(SentenceEncoder(folder).encode(known), right, atol=2e-3)  # that in 16 bits
    empty = SentenceEncoder(folder).encode(TEXTS)
    assert np.isfinite(empty).all()
    assert not empty[3].any()


@pytest.mark.parametrize("family", ["modernbert", "deberta-v2", "mpnet", "t5"])
def test_every_kind_of_tokenizer(family: str, tmp_path: Path) -> None:
    """Against plain sums over the ids that the tokenizer gives without special tokens."""
    (tmp_path / "work").mkdir()
    family_folders.make(family, tmp_path / "encoder", tmp_path / "work")
    distill_words(tmp_path / "encoder", tmp_path / "words", dimensions=4)
    found = static_folder(tmp_path / "words")
    table, tokenizer = found.read_table(), AutoTokenizer.from_pretrained(tmp_path / "encoder")  # type: ignore[union-attr]
    texts = ["the first word", "a other"]
    rows = tokenizer(texts, add_special_tokens=False)["input_ids"]
    sums = np.stack([table[[each for each in row if each != tokenizer.unk_token_id]].sum(axis=0) for row in rows])
    assert sums.any()
    right = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    encoder = SentenceEncoder(tmp_path / "words")
    np.testing.assert_allclose(encoder.encode(texts), right, atol=1e-5)
    calls = encoder.tokenizer(texts)["input_ids"]
    assert [list(row) for row in calls] == [list(row) for row in rows]
    with_offsets = encoder.tokenizer(texts, return_offsets_mapping=True)["input_ids"]
    assert [list(row) for row in with_offsets] == [list(row) for row in rows]


def test_the_table_answers_for_words(folder: Path) -> None:
    words = WordVectors.load(folder)
    assert "film" in words
    assert "[CLS]" not in words
    assert words.nearest("film", 3)[0].word != "film"


def test_what_cannot_be_distilled(encoder: Path, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.InputError, match="word vectors already"):
        distill_words(folder, tmp_path / "again")
    with pytest.raises(errors.ConfigError, match="exists and is not empty"):
        distill_words(encoder, folder)
    with pytest.raises(errors.ConfigError, match="dimensions"):
        distill_words(encoder, tmp_path / "x", dimensions=0)
    with pytest.raises(errors.ConfigError, match="sif"):
        distill_words(encoder, tmp_path / "x", sif=1.5)
    assert not (tmp_path / "x").exists()


def test_vectors_that_16_bits_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="70000"):
        write_static_folder(tmp_path, np.full((2, 2), 7e4, np.float32), {})
    assert not list(tmp_path.iterdir())


def test_the_config_is_that_of_model2vec(folder: Path) -> None:
    said = json.loads((folder / "config.json").read_text())
    assert (said["model_type"], said["normalize"], said["hidden_dim"]) == ("model2vec", True, 8)
    assert said["embedding_dtype"] == "float16"
