"""Weights beside the graphs: stored once, mapped by the runtime, and linear layers computed in another way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import bertkit
from bertkit.export.onnx_export import export_onnx
from bertkit.export.onnx_weights import ALIGNMENT, LinearLayer
from onnx_helpers import save_classifier

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced_once")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return bertkit.BertForSequenceClassification.from_pretrained(save_classifier(tmp_path_factory.mktemp("model")))


@pytest.mark.campaign
def test_two_graphs_share_their_weights(model: Any, tmp_path: Path) -> None:
    export_onnx(model, None, tmp_path / "both", variants=("padded", "packed"))
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    data = (tmp_path / "both" / "model.onnx_data").stat().st_size
    places = [
        {tensor.name: {entry.key: entry.value for entry in tensor.external_data} for tensor in graph.initializer
         if tensor.external_data}
        for name in ("model.onnx", "model_packed.onnx")
        for graph in [onnx.load(tmp_path / "both" / name, load_external_data=False).graph]
    ]  # fmt: skip
    assert len(places[0]) >= 6
    common = places[0].keys() & places[1].keys()
    assert len(common) >= 6
    assert all(places[0][name] == places[1][name] for name in common)
    every = {(int(p["offset"]), int(p["length"])) for graph in places for p in graph.values()}
    assert all(offset % ALIGNMENT == 0 for offset, _ in every)
    assert sum(length for _, length in every) < 1.1 * size
    assert data < sum(length + ALIGNMENT for _, length in every)


def split_product(layer: LinearLayer) -> Any:
    """``x @ weight.T`` and the sum as two nodes, with a transposed copy of the weight."""
    weight = np.ascontiguousarray(layer.weight.T)
    assert layer.bias is not None
    nodes = [
        helper.make_node("MatMul", [layer.x, f"{layer.name}.t"], [f"{layer.name}.product"]),
        helper.make_node("Add", [f"{layer.name}.product", layer.bias], [layer.y]),
    ]
    return nodes, [numpy_helper.from_array(weight, f"{layer.name}.t")]


@pytest.mark.campaign
def test_linear_layers_in_another_form(model: Any, tmp_path: Path) -> None:
    """The export's own check compares the result with the model; every layer is there, under its name."""
    seen: list[str] = []

    def nodes(layer: LinearLayer) -> Any:
        seen.append(layer.name)
        owner = model.get_submodule(layer.name)
        np.testing.assert_array_equal(layer.weight, owner.weight.detach().numpy())
        return None if layer.name == "classifier" else split_product(layer)

    exported = export_onnx(model, None, tmp_path / "out", linear_nodes=nodes)
    assert exported.variants["packed"]["largest_difference"] < 1e-4
    assert sorted(seen) == sorted(name for name, part in model.named_modules() if type(part).__name__ == "Linear")
    graph = onnx.load(tmp_path / "out" / "model_packed.onnx", load_external_data=False).graph
    assert [node.op_type for node in graph.node].count("Gemm") == 1
    assert not any(tensor.name.endswith("ffn_up.weight") for tensor in graph.initializer), "the old copy is gone"


def test_a_wrong_form_fails_the_check(model: Any, tmp_path: Path) -> None:
    def wrong(layer: LinearLayer) -> Any:
        return split_product(layer._replace(weight=layer.weight * np.float32(1.01)))

    with pytest.raises(bertkit.CheckpointError, match="does not compute what the model does"):
        export_onnx(model, None, tmp_path / "out", linear_nodes=wrong)
    assert not (tmp_path / "out").exists()
