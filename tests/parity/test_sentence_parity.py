"""Vectors of texts beside sentence-transformers on real weights, in both directions: it writes, it reads.

Run with ``pytest -m campaign``; skipped where the peer is not installed.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertkit import SentenceEncoder
from bertkit.config.sentence_config import POOLING_MODES
from bertkit.metrics.vector_precision import quantized
from bertkit.model.sentence_model import SentenceModel

pytestmark = pytest.mark.campaign
st = pytest.importorskip("sentence_transformers")

#: Of the numbers of a vector; where they are larger than 1, of the largest of them.
TOLERANCE = 1e-5
SPECIAL = ["", "x", " two  spaces ", "ÉCOLE İstanbul ΟΔΟΣ", "a [MASK] b", "word " * 300]
WIDTH = 384


def cases() -> dict[str, Any]:
    """Name -> what follows the encoder, made by the peer."""
    from sentence_transformers import models

    def dense(activation: str, **options: Any) -> Any:
        return models.Dense(WIDTH, 64, activation_function=getattr(torch.nn, activation)(), **options)

    found = {mode: lambda mode=mode: [models.Pooling(WIDTH, pooling_mode=mode)] for mode in POOLING_MODES}
    found |= {
        f"{mode} without the prompt": lambda mode=mode: [models.Pooling(WIDTH, pooling_mode=mode, include_prompt=False)]
        for mode in POOLING_MODES
    }
    found |= {
        name: lambda name=name: [models.Pooling(WIDTH), dense(name, bias=name != "ReLU"), models.Normalize()]
        for name in ("Tanh", "Identity", "ReLU", "GELU", "SiLU", "Sigmoid")
    }
    found["several"] = lambda: [models.Pooling(WIDTH, pooling_mode=["mean", "cls", "lasttoken"])]
    found["all"] = lambda: [
        models.Pooling(WIDTH, pooling_mode=["max", "weightedmean"]),
        models.Dense(2 * WIDTH, 96),
        models.LayerNorm(96),
        models.Normalize(),
    ]
    return found


@pytest.fixture(scope="module")
def texts(shared: Path) -> list[str]:
    lines = (shared / "data" / "glue" / "STS-B" / "dev.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [line.split("\t")[7] for line in random.Random(0).sample(lines, 24)] + SPECIAL


@pytest.fixture(scope="module")
def encoder(minilm: Path) -> Any:
    from sentence_transformers import models

    return models.Transformer(str(minilm), max_seq_length=128)


def apart(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference, as a share of the largest number where that is above 1."""
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("name", cases())
def test_equal_in_both_directions(name: str, encoder: Any, texts: list[str], tmp_path: Path) -> None:
    torch.manual_seed(0)
    prompts = {"query": "query: ", "document": "passage: "}
    theirs = st.SentenceTransformer(modules=[encoder, *cases()[name]()], device="cpu", prompts=prompts)
    with torch.no_grad():
        for key, value in theirs.state_dict().items():
            if key.endswith(("norm.weight", "norm.bias")) and not key.startswith("0."):
                value.normal_()
    theirs.save(str(tmp_path / "theirs"), create_model_card=False)
    ours = SentenceEncoder(tmp_path / "theirs", precision="fp32")
    ours.save_pretrained(tmp_path / "ours")
    SentenceModel.from_pretrained(tmp_path / "theirs").save_pretrained(tmp_path / "trained", ours.tokenizer)
    for way in ("encode", "encode_query", "encode_document"):
        expected = getattr(theirs, way)(texts)
        assert apart(getattr(ours, way)(texts, truncation=True), expected) <= TOLERANCE
        for folder in ("ours", "trained"):
            back = st.SentenceTransformer(str(tmp_path / folder), device="cpu")
            assert apart(getattr(back, way)(texts), expected) <= TOLERANCE
    assert apart(ours.encode(texts, truncation=True), theirs.encode_query(texts)) > 100 * TOLERANCE  # control
    options = {"truncation": True, "dimensions": 32, "normalize": True}
    assert apart(ours.encode(texts, **options), theirs.encode(texts, truncate_dim=32, normalize_embeddings=True)) <= (
        TOLERANCE
    )


@pytest.mark.parametrize("measure", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarities(measure: str, minilm: Path, texts: list[str], tmp_path: Path) -> None:
    theirs = st.SentenceTransformer(str(minilm), device="cpu", similarity_fn_name=measure)
    theirs.save(str(tmp_path), create_model_card=False)
    ours = SentenceEncoder(tmp_path, precision="fp32")
    vectors = 3 * theirs.encode(texts)
    some, others = vectors[:5], vectors[5:]  # torch's distance of a vector from itself is not exactly 0
    np.testing.assert_allclose(ours.similarity(some, others), theirs.similarity(some, others).numpy(), atol=1e-4)
    paired = theirs.similarity_pairwise(vectors[:5], vectors[5:10]).numpy()
    np.testing.assert_allclose(ours.similarity_pairwise(vectors[:5], vectors[5:10]), paired, atol=1e-5)


def test_vectors_in_fewer_bits_are_the_same_numbers(minilm: Path, texts: list[str]) -> None:
    from sentence_transformers.util.quantization import quantize_embeddings

    vectors = st.SentenceTransformer(str(minilm), device="cpu").encode(texts)
    for precision in ("int8", "uint8", "binary", "ubinary"):
        expected = quantize_embeddings(vectors, precision, calibration_embeddings=vectors[:20])
        np.testing.assert_array_equal(quantized(vectors, precision, vectors[:20]), expected)


def test_the_default_precision_is_near(minilm: Path, texts: list[str]) -> None:
    expected = st.SentenceTransformer(str(minilm), device="cpu").encode(texts)
    assert apart(SentenceEncoder(minilm).encode(texts, truncation=True), expected) <= TOLERANCE
