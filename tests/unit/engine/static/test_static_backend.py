"""Word vectors as a model: folders of model2vec and sentence-transformers, against plain sums and the latter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from bertkit import AutoModel, InputError, SentenceEncoder, pipeline
from bertkit.checkpoints.static_folder import inspect_static, static_folder
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.errors import BertkitError, CheckpointError, ConfigError
from bertkit.inference.protocol import model_hash

pytestmark = pytest.mark.slow

WORDS = ["[PAD]", "[UNK]", "the", "cat", "sat", "##s", "mat", ",", "dog"]
WIDTH = 6
TABLE = np.random.default_rng(0).normal(size=(len(WORDS), WIDTH)).astype(np.float32)
TEXTS = ["The cat sat", "cats, cats", "dog", "", "xyzzy cat", "the mats the xyzzy dog"]
PIECES = [
    ["the", "cat", "sat"],
    ["cat", "##s", ",", "cat", "##s"],
    ["dog"],
    [],
    ["cat"],
    ["the", "mat", "##s", "the", "dog"],
]
CONFIG = {"model_type": "model2vec", "architectures": ["StaticModel"], "normalize": True, "hidden_dim": WIDTH}


def write_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.WordPiece({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]"])
    tokenizer.save(str(folder / "tokenizer.json"))


def model2vec_folder(folder: Path, tensors: dict[str, np.ndarray] | None = None, **changes: Any) -> Path:
    """As model2vec writes it, without modules.json, which its first versions did not write."""
    folder.mkdir(exist_ok=True)
    write_tokenizer(folder)
    save_file({"embeddings": TABLE} if tensors is None else tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    return folder


def st_folder(folder: Path, place: str, *kinds: str) -> Path:
    """As sentence-transformers writes a StaticEmbedding."""
    (folder / place).mkdir(parents=True)
    write_tokenizer(folder / place)
    save_file({"embedding.weight": TABLE}, folder / place / "model.safetensors")
    names = [(place, "sentence_transformers.models.StaticEmbedding")]
    names += [(f"{number}_{kind}", f"sentence_transformers.models.{kind}") for number, kind in enumerate(kinds, 1)]
    listed = [{"idx": at, "name": str(at), "path": path, "type": kind} for at, (path, kind) in enumerate(names)]
    (folder / "modules.json").write_text(json.dumps(listed))
    return folder


def means(table: np.ndarray = TABLE) -> np.ndarray:
    rows = [[table[WORDS.index(piece)] for piece in pieces] or [np.zeros(WIDTH)] for pieces in PIECES]
    return np.stack([np.mean(row, axis=0) for row in rows])


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def test_a_text_is_the_mean_of_its_known_tokens(tmp_path: Path) -> None:
    encoder = SentenceEncoder(model2vec_folder(tmp_path / "m"))
    found = encoder.encode(TEXTS)
    np.testing.assert_allclose(found, unit(means()), atol=1e-6)
    np.testing.assert_allclose(encoder.encode(TEXTS, normalize=False), means(), atol=1e-6)
    assert not np.allclose(found[4], unit((means() + TABLE[1])[4:5]))  # control: with the unknown word
    np.testing.assert_array_equal(encoder.encode(TEXTS[0]), found[0])
    np.testing.assert_allclose(encoder.encode(TEXTS * 800), np.tile(found, (800, 1)), atol=1e-6)  # in several packs
    assert encoder.width == WIDTH


def test_vectors_may_be_shared_and_weighted(tmp_path: Path) -> None:
    mapping, weights = np.array([0, 0, 1, 2, 3, 1, 0, 2, 3]), np.linspace(0.5, 2, len(WORDS))
    tensors = {"embeddings": TABLE[:4], "mapping": mapping, "weights": weights}
    folded = TABLE[mapping] * weights[:, None].astype(np.float32)
    found = SentenceEncoder(model2vec_folder(tmp_path / "m", tensors, vocabulary_quantization=4, normalize=False))
    np.testing.assert_allclose(found.encode(TEXTS), means(folded), atol=1e-6)
    in_bytes = {"embeddings": np.round(TABLE * 40).astype(np.int8)}
    found = SentenceEncoder(model2vec_folder(tmp_path / "b", in_bytes, embedding_dtype="int8", normalize=False))
    np.testing.assert_allclose(found.encode(TEXTS), means(np.round(TABLE * 40)), atol=1e-4)


@pytest.mark.parametrize(("place", "kinds"), [("", ()), ("", ("Normalize",)), ("0_StaticEmbedding", ("Normalize",))])
def test_the_vectors_are_those_of_sentence_transformers(tmp_path: Path, place: str, kinds: tuple[str, ...]) -> None:
    folder = st_folder(tmp_path / "m", place, *kinds)
    right = SentenceTransformer(str(folder)).encode(TEXTS)
    np.testing.assert_allclose(SentenceEncoder(folder).encode(TEXTS), right, atol=1e-6)


def test_what_else_the_vectors_are_for(tmp_path: Path) -> None:
    folder = model2vec_folder(tmp_path / "m")
    similar = pipeline("sentence-similarity", folder)(("the cat", "the cats"))
    assert float(similar) == pytest.approx(
        float(np.dot(*SentenceEncoder(folder).encode(["the cat", "the cats"]))), abs=1e-6
    )
    tokens = pipeline("feature-extraction", folder)("the cats")
    np.testing.assert_allclose(np.asarray(tokens)[0], TABLE[[2, 3, 5]], atol=1e-6)
    labels = pipeline("zero-shot-classification", folder)("a cat", candidate_labels=["the cat", "the dog"])
    assert labels["labels"][0] == "the cat"
    assert pipeline(None, folder).task == "feature-extraction"
    assert model_hash(folder) != model_hash(model2vec_folder(tmp_path / "n", {"embeddings": TABLE + 1}))
    report = inspect_static(static_folder(folder))  # type: ignore[arg-type]
    assert (report.tokens, report.dimensions, report.steps) == (len(WORDS), WIDTH, ("Normalize",))


def test_a_limit_that_the_folder_sets(tmp_path: Path) -> None:
    encoder = SentenceEncoder(model2vec_folder(tmp_path / "m", max_length=4, normalize=False))
    with pytest.raises(InputError, match="the limit is 4"):
        encoder.encode("the cat sat the mat")
    np.testing.assert_allclose(
        encoder.encode("the cat sat the mat", truncation=True), TABLE[[2, 3, 4, 2]].mean(axis=0), atol=1e-6
    )


def test_what_word_vectors_cannot_do(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="first module is 'StaticEmbedding', word vectors without an encoder"):
        AutoModel.from_pretrained(st_folder(tmp_path / "st", "0_StaticEmbedding"))
    folder = model2vec_folder(tmp_path / "m")
    with pytest.raises(CheckpointError, match="word vectors, which have no layers"):
        AutoModel.from_pretrained(folder)
    with pytest.raises(CheckpointError, match="word vectors, without an encoder or a head"):
        pipeline("text-classification", folder)
    with pytest.raises(InputError, match="pooled by their mean"):
        pipeline("feature-extraction", folder)("the cat", pooling="cls")
    with pytest.raises(ConfigError, match="looked up on the CPU"):
        InferenceEngine.load(folder, "BertModel", device="cuda")
    with pytest.raises(ConfigError, match="summed in float32"):
        SentenceEncoder(folder, precision="int8")
    with pytest.raises(InputError, match="without a model object"):
        SentenceEncoder(folder).save_pretrained(tmp_path / "copy")


BAD = {
    "no table": {"vectors": TABLE},
    "another tensor": {"embeddings": TABLE, "bias": TABLE[0]},
    "one axis": {"embeddings": TABLE[0]},
    "nothing": {"embeddings": TABLE[:0]},
    "a row beyond": {"embeddings": TABLE[:4], "mapping": np.array([0, 1, 2, 3, 4, 0, 0, 0, 0])},
    "a row before": {"embeddings": TABLE[:4], "mapping": np.array([0, 1, 2, 3, -1, 0, 0, 0, 0])},
    "broken numbers": {"embeddings": TABLE, "mapping": np.zeros(9)},
    "few weights": {"embeddings": TABLE, "weights": np.ones(3)},
    "not finite": {"embeddings": np.where(TABLE > 1, np.inf, TABLE)},
    "more tokens than vectors": {"embeddings": TABLE[:5]},
    "whole numbers": {"embeddings": TABLE.astype(np.int64)},
}


@pytest.mark.parametrize("what", BAD)
def test_a_damaged_table_is_refused(tmp_path: Path, what: str) -> None:
    with pytest.raises(BertkitError, match=r"safetensors|tokenizer"):
        SentenceEncoder(model2vec_folder(tmp_path / "m", BAD[what]))


def test_the_row_that_there_is_not_is_named(tmp_path: Path) -> None:
    for what, row in (("a row beyond", 4), ("a row before", -1)):
        with pytest.raises(CheckpointError, match=f"mapping names row {row}, and there are rows 0 to 3"):
            SentenceEncoder(model2vec_folder(tmp_path / what, BAD[what]))


def test_a_small_file_does_not_become_a_large_table(tmp_path: Path) -> None:
    tensors = {"embeddings": np.zeros((1, 100_000), np.float32), "mapping": np.zeros(1_000_000, np.int64)}
    with pytest.raises(BertkitError, match="1,000,000 vectors of 100,000 numbers"):
        SentenceEncoder(model2vec_folder(tmp_path / "m", tensors))


def test_unknown_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="multiply"):
        SentenceEncoder(model2vec_folder(tmp_path / "m", multiply=2))
    folder = st_folder(tmp_path / "s", "")
    (folder / "modules.json").write_text((folder / "modules.json").read_text().replace("StaticEmbedding", "WordBag"))
    with pytest.raises(CheckpointError, match="WordBag"):
        SentenceEncoder(folder)
    folder = st_folder(tmp_path / "t", "", "Pooling")
    with pytest.raises(CheckpointError, match="Pooling after word vectors"):
        SentenceEncoder(folder)
