"""Folders with an adapter, written by hand as ``peft`` does: what they make of a model, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import bertkit
from adapter_helpers import CONFIG, PREFIX, WEIGHTS, by_hand, change_settings, change_tensors, stir
from bertkit import AutoTokenizer, BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel
from bertkit.checkpoints.huggingface import find_weights
from bertkit.checkpoints.inspect import inspect
from bertkit.config.adapter_config import AdapterConfig, read_adapter_config
from bertkit.errors import CheckpointError
from bertkit.inference.protocol import model_hash
from bertkit.model.adapters import add_adapters
from bertkit.model.convert import convert
from finetune_data import tiny_start

SHAPE = BertConfig(
    vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=16,
)  # fmt: skip
QUERY, UP = "bert.encoder.layer.0.attention.self.query", "bert.encoder.layer.1.intermediate.dense"
HEAD = {"classifier.weight": torch.full((3, 8), 0.5), "classifier.bias": torch.arange(3.0)}
IDS = torch.arange(1, 11).view(2, 5)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    BertForMaskedLM(SHAPE).save_pretrained(tmp_path / "plain")
    model = BertModel.from_pretrained(tmp_path / "plain", new_head=True)  # with a pooler
    model.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def adapter(base: Path) -> Path:
    by_hand(base.parent / "adapter", base, modules={QUERY: (8, 8), UP: (12, 8)}, head=HEAD)
    return base.parent / "adapter"


def expected(base: Path, adapter: Path, scale: float = 2.0) -> torch.Tensor:
    """Logits of the plain model with the sums in it."""
    tensors = load_file(adapter / WEIGHTS)
    model = BertForSequenceClassification.from_pretrained(base, num_labels=3)
    with torch.no_grad():
        first, second = model.bert.encoder.layer
        for weight, name in ((first.attention.qkv.weight[:8], QUERY), (second.ffn_up.weight, UP)):
            down, up = (tensors[f"{PREFIX}{name}.lora_{kind}.weight"] for kind in "AB")
            weight += scale * up @ down
        model.classifier.weight.copy_(HEAD["classifier.weight"])
        model.classifier.bias.copy_(HEAD["classifier.bias"])
        return model(IDS).logits


def error(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).detach().abs().max())


def test_a_folder_of_peft_is_the_model_with_the_sums_in_it(base: Path, adapter: Path) -> None:
    """Without a ``config.json`` or a tokenizer: class and number of labels are those of the adapter."""
    model = BertForSequenceClassification.from_pretrained(adapter)
    logits = expected(base, adapter)
    assert error(model(IDS).logits, logits) < 1e-6
    plain = BertForSequenceClassification.from_pretrained(base, num_labels=3)
    assert error(plain(IDS).logits, logits) > 0.1, "the adapter does something"
    assert (model.config.num_labels, model.config.architectures) == (3, ["BertForSequenceClassification"])
    auto = bertkit.AutoModelForSequenceClassification.from_pretrained(adapter / WEIGHTS)
    assert torch.equal(auto(IDS).logits, model(IDS).logits)


@pytest.mark.parametrize(
    ("said", "scale"),
    [
        ({"use_rslora": True}, 4 / 2**0.5),
        ({"lora_alpha": 7}, 3.5),
        ({"alpha_pattern": {"query": 6, "intermediate.dense": 6}}, 3.0),
        ({"alpha_pattern": {f"^{QUERY}": 6, UP: 6, "dense": 100}}, 3.0),
        ({"alpha_pattern": {"^query": 6}, "rank_pattern": {"key": 5}}, 2.0),
    ],
)
def test_scales(said: dict[str, Any], scale: float, base: Path, adapter: Path) -> None:
    change_settings(adapter, **said)
    model = BertForSequenceClassification.from_pretrained(adapter)
    assert error(model(IDS).logits, expected(base, adapter, scale)) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_of_weights_are_added_in_float32_or_more(dtype: torch.dtype, base: Path, adapter: Path) -> None:
    for file in (base / "model.safetensors", adapter / WEIGHTS):
        save_file({name: each.to(dtype) for name, each in load_file(file).items()}, file, {"format": "pt"})
    model = BertForSequenceClassification.from_pretrained(adapter, dtype="float64")
    tensors, whole = load_file(adapter / WEIGHTS), load_file(base / "model.safetensors")
    down, up = (tensors[f"{PREFIX}{UP}.lora_{kind}.weight"].double() for kind in "AB")
    added = whole[f"{UP.removeprefix('bert.')}.weight"].double() + 2.0 * up @ down
    assert error(model.bert.encoder.layer[1].ffn_up.weight, added) < 1e-12


def test_it_is_converted_to_a_model_of_its_own(base: Path, adapter: Path, tmp_path: Path) -> None:
    report = convert(adapter, tmp_path / "merged")
    assert "merged: low-rank matrices were added to 2 matrices" in report.render()
    model = BertForSequenceClassification.from_pretrained(tmp_path / "merged")
    assert error(model(IDS).logits, expected(base, adapter)) < 1e-6
    shutil.rmtree(base)
    again = BertForSequenceClassification.from_pretrained(tmp_path / "merged")
    assert torch.equal(again(IDS).logits, model(IDS).logits), "it needs its base no more"


def test_inspect_and_hashes_are_of_both(base: Path, adapter: Path) -> None:
    report = inspect(adapter)
    assert report.loadable
    assert [file.name for file in report.files] == ["model.safetensors", WEIGHTS]
    assert "BertForSequenceClassification" in [name for name, verdict in report.classes.items() if verdict == "exact"]
    before = model_hash(adapter)
    change_tensors(adapter, **{f"{PREFIX}classifier.bias": torch.zeros(3)})
    changed = model_hash(adapter)
    assert len({before, changed, model_hash(base)}) == 3
    change_tensors(adapter, **{f"{PREFIX}{UP}.lora_A.weight": torch.full((2, 8), float("nan"))})
    assert any("not finite" in problem for problem in inspect(adapter).problems)
    with pytest.raises(CheckpointError, match=f"{WEIGHTS}.*not finite"):
        BertForSequenceClassification.from_pretrained(adapter)


def test_the_tokenizer_is_that_of_the_base_unless_it_has_its_own(tmp_path: Path) -> None:
    start = tiny_start(tmp_path / "start")
    by_hand(tmp_path / "adapter", start, modules={QUERY: (16, 16)}, head={})
    assert AutoTokenizer.from_pretrained(tmp_path / "adapter").tokenize("the film") == ["the", "film"]
    (tmp_path / "adapter/vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the"]))
    assert AutoTokenizer.from_pretrained(tmp_path / "adapter").tokenize("the film") == ["the", "[UNK]"]


# ------------------------------------------------------------------------------------------------ bad input


def settings_with(**changes: Any) -> Callable[[Path], object]:
    return lambda folder: change_settings(folder, **changes)


def tensors_with(**changes: torch.Tensor | None) -> Callable[[Path], object]:
    return lambda folder: change_tensors(folder, **{f"{PREFIX}{name}": each for name, each in changes.items()})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (settings_with(peft_type="IA3"), r"peft_type is 'IA3'; bertkit supports LORA\. Merge"),
        (settings_with(use_dora=True), "use_dora is True; bertkit supports plain LoRA"),
        (settings_with(lora_bias=True), "lora_bias is True"),
        (settings_with(bias="all"), "bias is 'all'; bertkit supports none"),
        (settings_with(layer_replication=[[0, 1]]), r"layer_replication is \[\[0, 1\]\]"),
        (settings_with(of_a_later_version={"x": 1}), "of_a_later_version is"),
        (settings_with(init_lora_weights="pissa"), "init_lora_weights is 'pissa'"),
        (settings_with(alpha_pattern={"(a+)+b": 3}), r"alpha_pattern is .*no other regular expressions"),
        (settings_with(r="8"), "r = '8'"),
        (settings_with(lora_alpha=-1), "lora_alpha"),
        (settings_with(base_model_name_or_path=None), "base_model_name_or_path does not name"),
        (
            settings_with(base_model_name_or_path="/no/such/model"),
            r"adapter for the model '/no/such/model'.*is not there",
        ),
        (
            settings_with(r=3),
            r"query has lora_A \[2, 8\] and lora_B \[8, 2\] of rank 3, but .*self.query.weight.* \[8, 8\]",
        ),
        (lambda folder: (folder / CONFIG).write_text("{"), "adapter_config.json is not a readable JSON"),
        (lambda folder: (folder / CONFIG).unlink(), "no model.safetensors|neither"),
        (lambda folder: (folder / WEIGHTS).unlink(), f"no {WEIGHTS}|does not exist"),
        (
            lambda folder: (folder / WEIGHTS).write_bytes(b"\x08\0\0\0\0\0\0\0{      }"[:12]),
            "not a whole safetensors file",
        ),
        (
            lambda folder: shutil.copy(folder.parent / "base/model.safetensors", folder),
            "holds a model .* and an adapter",
        ),
        (tensors_with(**{f"{UP}.lora_A.weight": None}), r"only one of lora_A and lora_B for '.*intermediate.dense'"),
        (tensors_with(**{f"{UP}.lora_magnitude_vector.weight": torch.zeros(12)}), "linear layers only"),
        (
            tensors_with(**{f"{UP}.lora_A.weight": torch.zeros(2, 16)}),
            r"lora_A \[2, 16\].*\[12, 8\]: the adapter is for a model of another shape",
        ),
        (
            tensors_with(**{f"bert.encoder.layer.7.q.lora_{kind}.weight": torch.zeros(2, 2) for kind in "AB"}),
            r"changes 'bert.encoder.layer.7.q', which the model in .*base/model.safetensors does not have",
        ),
        (
            lambda folder: save_file({"x.lora_A.weight": torch.zeros(2, 2)}, folder / WEIGHTS),
            "does not begin with 'base_model.model.'",
        ),
    ],
)
def test_refused(change: Callable[[Path], object], message: str, adapter: Path) -> None:
    change(adapter)
    with pytest.raises(CheckpointError, match=message):
        BertForSequenceClassification.from_pretrained(adapter)


def test_an_adapter_of_an_adapter_is_refused_and_says_what_to_do(adapter: Path, tmp_path: Path) -> None:
    for base in (adapter, tmp_path / "self"):
        shutil.rmtree(tmp_path / "self", ignore_errors=True)
        by_hand(tmp_path / "self", base, modules={QUERY: (8, 8)}, head={})
        with pytest.raises(CheckpointError, match=r"which is an adapter itself.*\n.*bertkit convert"):
            find_weights(tmp_path / "self")


def test_a_model_with_other_weights_is_told_by_its_fingerprint(base: Path, tmp_path: Path) -> None:
    """Written again under other names, in shards or in another order it is the same; one other value is seen."""
    model = BertForSequenceClassification.from_pretrained(base, num_labels=3)
    add_adapters(model, AdapterConfig(base_model_name_or_path=str(base)))
    stir(model)
    model.save_pretrained(tmp_path / "adapter")
    expected = model(IDS).logits
    tensors = load_file(base / "model.safetensors")
    other = {f"bert.{name}": each for name, each in reversed(tensors.items())}
    save_file({**other, "cls.predictions.bias": torch.ones(30)}, base / "model.safetensors", {"format": "pt"})
    again = BertForSequenceClassification.from_pretrained(tmp_path / "adapter")
    assert error(again(IDS).logits, expected) < 1e-6
    other["bert.encoder.layer.1.output.dense.weight"][0, 0] += 1e-3
    save_file(other, base / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        CheckpointError, match=r"trained on other weights than .*base/model.safetensors: their fingerpr"
    ):
        BertForSequenceClassification.from_pretrained(tmp_path / "adapter")


def test_the_file_says_what_it_is_read_as(tmp_path: Path) -> None:
    given = AdapterConfig(
        base_model_name_or_path="owner/name", revision="main", r=4, lora_alpha=2.5, use_rslora=True,
        target_modules=("query",), modules_to_save=("classifier",), task_type="SEQ_CLS", lora_dropout=0.1,
    )  # fmt: skip
    (tmp_path / CONFIG).write_text(given.to_json_string())
    assert read_adapter_config(tmp_path) == given
    assert json.loads(given.to_json_string())["inference_mode"] is True
