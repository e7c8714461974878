"""Exports of every head of every family, and of a real model, run by ONNX Runtime beside the model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import bertkit
from bertkit.cli import main
from bertkit.export.onnx_export import OPSETS, export_onnx
from bertkit.inference.onnx_model import OnnxModel
from family_helpers import CASES, pair


@pytest.mark.campaign
@pytest.mark.parametrize(("shape", "head"), CASES)
def test_every_head_of_every_family(shape: str, head: str, tmp_path: Path) -> None:
    theirs, model = pair(shape, head, tmp_path / "theirs")
    exported = export_onnx(model, None, tmp_path / "out", variants=("padded", "packed"))
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == [type(theirs).__name__]
    for facts in exported.variants.values():
        assert facts["largest_difference"] <= 1e-4
        assert ("token_type_ids" in facts["inputs"]) == (model.config.type_vocab_size > 0)


@pytest.mark.campaign
@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset(opset: int, tmp_path: Path) -> None:
    import onnx

    _, model = pair("bert", "BertForTokenClassification", tmp_path / "theirs")
    exported = export_onnx(model, None, tmp_path / "out", variants=("padded", "packed"), opset=opset)
    for facts in exported.variants.values():
        written = onnx.load(tmp_path / "out" / facts["file"])
        assert [one.version for one in written.opset_import if one.domain == ""] == [opset]


@pytest.mark.campaign
def test_a_real_model(minilm: Path, tmp_path: Path) -> None:
    """MiniLM, against the vectors of the pipeline, on texts of many lengths."""
    assert main(["export", str(minilm), "--out", str(tmp_path / "out"), "--variant", "both", "--quiet"]) == 0
    texts = ["short", *(f"a sentence with {'many ' * n}words" for n in range(0, 200, 17))]
    expected = bertkit.pipeline("feature-extraction", model=str(minilm), precision="fp32")(texts)
    for variant in ("packed", "padded"):
        found = OnnxModel(tmp_path / "out", variant)(texts)["last_hidden_state"]
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs[0], rtol=1e-4, atol=1e-4)
