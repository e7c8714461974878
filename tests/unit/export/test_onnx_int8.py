"""Exports of models in 8 bits: every head, the check of what they compute, and what the folder says of itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bertkit
from bertkit.checkpoints.int8_figures import DevScores, Measured, Speed
from bertkit.checkpoints.int8_folder import VERSION, Quantization
from bertkit.cli import main
from bertkit.engine import onnx_backend
from bertkit.engine.onnx_backend import EXACT_BYTES, OnnxBackend, open_session
from bertkit.errors import CheckpointError, ConfigError
from bertkit.export import onnx_export
from bertkit.export.onnx_check import check_graph
from bertkit.export.onnx_export import export_onnx, load_for_export
from bertkit.inference.runs import open_run
from bertkit.model.int8_model import replace_module, save_int8
from bertkit.quantization.quantize import quantize
from bertkit.system.processor import Processor
from byte_matrix_helpers import byte_linear, in_bytes
from pipeline_helpers import save_tiny

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("traced_once")]

MEASURED = Measured(
    {"cosine_mean": 0.99974, "cosine_p1": 0.99941},
    Speed(1.0, 0.5, 1.0, 0.5),
    DevScores("accuracy", 0.913, 0.911, -0.003, 0.001, rows=5000),
)


def in_8_bits(folder: Path, model_class: type[Any], **settings: Any) -> Path:
    """A tiny model with the linear layers of its encoder in 8 bits, as ``bertkit quantize`` writes it."""
    float_folder = save_tiny(folder / "float", model_class, **settings)
    model = model_class.from_pretrained(float_folder)
    encoder = getattr(model, "bert", model).encoder
    names = {module: name for name, module in model.named_modules()}
    for module in [each for each in encoder.modules() if isinstance(each, nn.Linear)]:
        weight, bias = module.weight.detach().numpy(), module.bias.detach().numpy()
        replace_module(model, names[module], byte_linear(in_bytes(weight, bias)))
    facts = Quantization(VERSION, bertkit.__version__, model_class.__name__, 8, 2, 0.0, ["pooler"], 1000, 0.0, MEASURED)
    shutil.copytree(float_folder, folder / "int8", ignore=shutil.ignore_patterns("*.safetensors"))
    save_int8(model, folder / "int8", facts)
    return folder / "int8"


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return in_8_bits(tmp_path_factory.mktemp("masked"), bertkit.BertForMaskedLM)


@pytest.fixture(scope="module")
def exported(masked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = load_for_export(masked)
    return export_onnx(given.model, given.tokenizer, tmp_path_factory.mktemp("out") / "onnx", check=False).folder


@pytest.mark.campaign
def test_a_masked_language_model(masked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its first check has one token, and predicts no word."""
    out = tmp_path / "onnx"
    assert main(["export", str(masked), "--out", str(out), "--variant", "both"]) == 0
    assert "BertForMaskedLM (int8)" in capsys.readouterr().out
    ours, theirs = (bertkit.pipeline("fill-mask", folder, precision="int8") for folder in (out, masked))
    for found, expected in zip(ours("the film is [MASK]"), theirs("the film is [MASK]"), strict=True):
        assert found["token_str"] == expected["token_str"]
        assert found["score"] == pytest.approx(expected["score"], rel=0.05)


def test_the_folder_says_that_it_is_in_8_bits(exported: Path) -> None:
    assert json.loads((exported / "export.json").read_text())["precision"] == "int8"
    card = (exported / "README.md").read_text()
    assert card.startswith("# BertForMaskedLM in 8 bits as ONNX")
    for said in (
        "1,000 texts",
        "float32: 'pooler'",
        "cosine mean 0.99974",
        "accuracy 0.9110, original 0.9130",
    ):
        assert said in card
    with pytest.raises(ConfigError, match=r"exported in int8.*leave precision='fp32' out"):
        bertkit.pipeline("fill-mask", exported, precision="fp32")


def test_weights_in_bytes_count(masked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def guard(folder: Path, num_bytes: int, *, what: str) -> Any:
        asked.append(num_bytes)
        raise ConfigError("enough is known")

    monkeypatch.setattr(onnx_export, "disk_guard", guard)
    with pytest.raises(ConfigError, match="enough"):
        export_onnx(load_for_export(masked).model, None, tmp_path / "onnx")
    assert asked == [pytest.approx((masked / "model.int8.safetensors").stat().st_size, rel=0.3)]


HEADS = {
    "regression": (bertkit.BertForSequenceClassification, {"num_labels": 1}),
    "choice": (bertkit.BertForMultipleChoice, {}),
    "tags": (bertkit.BertForTokenClassification, {}),
    "albert": (bertkit.BertModel, {"model_type": "albert", "embedding_size": 16, "num_hidden_layers": 2}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.campaign) for name in ("regression", "albert", "choice", "tags")]
)
def test_the_check_sees_another_model(tmp_path: Path, name: str) -> None:
    """Also where all outputs have one number, whose cosine is 1 or -1; and a layer that the model uses twice."""
    model_class, settings = HEADS[name]
    model = model_class.from_pretrained(in_8_bits(tmp_path, model_class, **{"num_hidden_layers": 1, **settings}))
    export_onnx(model, None, tmp_path / "onnx")
    last: Any = model.classifier if hasattr(model, "classifier") else model.pooler
    with torch.no_grad():
        for parameter in last.parameters():
            parameter *= 1.2 if name != "albert" else -1.0
    with pytest.raises(CheckpointError, match=r"model_packed\.onnx does not compute what the model does: ") as caught:
        check_graph(tmp_path / "onnx" / "model_packed.onnx", model, "packed")
    # Of vectors the cosines alone are judged, and so they alone are told.
    assert ("where 0.998 (0.995) or more is needed" in str(caught.value)) == (name == "albert")
    assert "neighbour" not in str(caught.value)


def test_the_check_sees_other_words(masked: Path, exported: Path) -> None:
    model = load_for_export(masked).model
    graph = exported / "model_packed.onnx"
    check_graph(graph, model, "packed")
    with torch.no_grad():
        for parameter in model.cls.predictions.parameters():
            parameter *= -1.0
    with pytest.raises(CheckpointError, match=r"model_packed\.onnx does not compute what the model does: "):
        check_graph(graph, model, "packed")


def test_a_layer_that_was_not_replaced(masked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, nodes_of = load_for_export(masked), onnx_export.byte_nodes

    def all_but_one(layers: Any) -> Any:
        return lambda layer: None if layer.name.endswith("layer.1.ffn_up") else nodes_of(layers)(layer)

    monkeypatch.setattr(onnx_export, "byte_nodes", all_but_one)
    with pytest.raises(AssertionError, match=r"stand-in: 'bert\.encoder\.layer\.1\.ffn_up'"):
        export_onnx(given.model, given.tokenizer, tmp_path / "onnx", check=False)
    assert not (tmp_path / "onnx").exists()


@pytest.mark.campaign
def test_a_run_opens_it_as_it_is(tmp_path: Path) -> None:
    given = load_for_export(in_8_bits(tmp_path, bertkit.BertForSequenceClassification, num_hidden_layers=1))
    export_onnx(given.model, given.tokenizer, tmp_path / "onnx", check=False)
    backend = open_run(tmp_path / "onnx").engine.backend
    assert isinstance(backend, OnnxBackend)
    assert backend.dtype == "int8"
    with pytest.raises(ConfigError, match="exported in int8"):
        open_run(tmp_path / "onnx", precision="fp32")


def test_an_export_is_not_exported_or_quantized_again(exported: Path, tmp_path: Path) -> None:
    told = "onnx is an exported model, .*; give the model that it was exported from"
    with pytest.raises(ConfigError, match=told):
        load_for_export(exported)
    with pytest.raises(ConfigError, match=told):
        quantize(exported, tmp_path / "new", [f"text {n}" for n in range(120)])


@pytest.mark.parametrize(("sets", "exact"), [(("AVX2",), True), (("AVX2", "AVX-512 VNNI"), False)])
def test_sums_do_not_saturate(
    exported: Path, monkeypatch: pytest.MonkeyPatch, sets: tuple[str, ...], exact: bool
) -> None:
    monkeypatch.setattr(onnx_backend, "find_processor", lambda: Processor("x86", 1, sets, None))
    options = open_session(exported / "model_packed.onnx").get_session_options()
    if exact:
        assert options.get_session_config_entry(EXACT_BYTES) == "1"
    else:
        with pytest.raises(RuntimeError, match=EXACT_BYTES):
            options.get_session_config_entry(EXACT_BYTES)
