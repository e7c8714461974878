"""Checkpoints at the edges of what there is, from the folder to the answer, beside the same in torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from bertkit import AutoTokenizer, BertForSequenceClassification, BertModel, pipeline
from bertkit.engine.native.library import native_library, why_not
from bertkit.engine.native.native_backend import NativeBackend
from bertkit.errors import CheckpointError, TextError
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.skipif(native_library() is None, reason=f"there is no compiled encoder: {why_not()}")
TEXT = "the film was good ."


def opened(task: str, folder: Path, **options: Any) -> Any:
    pipe = pipeline(task, str(folder), device="cpu", precision="fp32", **options)
    assert isinstance(pipe.engine.backend, NativeBackend)
    return pipe


def in_torch(model: Any, folder: Path, text: str = TEXT) -> Any:
    with torch.inference_mode():
        return model.from_pretrained(folder)(**AutoTokenizer.from_pretrained(folder)([text], return_tensors="pt"))


@pytest.mark.parametrize(("width", "heads", "inner"), [(1, 1, 1), (3, 3, 5), (36, 3, 50), (100, 4, 33)])
def test_widths_that_are_no_multiple_of_a_vector(width: int, heads: int, inner: int, tmp_path: Path) -> None:
    shape = {"hidden_size": width, "num_attention_heads": heads, "intermediate_size": inner}
    folder = save_tiny(tmp_path / "model", **shape)
    expected = in_torch(BertModel, folder).last_hidden_state[0].mean(0).numpy()
    np.testing.assert_allclose(opened("feature-extraction", folder, pooling="mean")(TEXT), expected, atol=1e-5)


def test_ten_thousand_labels(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model", BertForSequenceClassification, num_labels=10_000)
    found = opened("text-classification", folder)(TEXT, top_k=None)
    expected = in_torch(BertForSequenceClassification, folder).logits[0].softmax(0)
    assert len(found) == 10_000
    for said in found[:20]:
        assert said["score"] == pytest.approx(float(expected[int(said["label"].removeprefix("LABEL_"))]), rel=1e-4)


def test_texts_of_no_one_and_many_tokens(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model", max_position_embeddings=3000)
    pipe = opened("feature-extraction", folder, pooling="mean")
    for text in ("", " ", "film", "film " * 2998):
        expected = in_torch(BertModel, folder, text).last_hidden_state[0].mean(0).numpy()
        np.testing.assert_allclose(pipe(text), expected, atol=1e-4)
    with pytest.raises(TextError, match=r"has 100,002 tokens.* the limit is 3,000"):
        pipe("film " * 100_000)
    np.testing.assert_array_equal(pipe("film " * 100_000, truncation=True), pipe("film " * 2998))


@pytest.mark.parametrize("kind", ["float64", "float16", "int64", "int8", "bool"])
def test_types_of_tensors(kind: str, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    expected = opened("feature-extraction", folder, pooling="mean")(TEXT)
    weights = {name: array.astype(kind) for name, array in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors")
    if not kind.startswith("float"):
        with pytest.raises(CheckpointError, match=r"of a wrong type \(\d+\):"):
            opened("feature-extraction", folder, pooling="mean")
        return
    found = opened("feature-extraction", folder, pooling="mean")(TEXT)
    np.testing.assert_allclose(found, expected, atol=1e-6 if kind == "float64" else 1e-2)
