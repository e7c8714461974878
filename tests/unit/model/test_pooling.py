"""What a sequence classifier reads of the encoder: chosen, saved, loaded, exported, and refused by other software."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from bertkit import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    ConfigError,
    InputError,
    pipeline,
)
from bertkit.batch import pack
from bertkit.checkpoints.inspect import inspect
from bertkit.config.families import FAMILIES
from pipeline_helpers import save_tiny

SHAPE = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 30, "initializer_range": 0.3,
}  # fmt: skip
SEQUENCES = [[2, 7, 8, 9, 3], [2, 10, 3], [2, 11, 12, 13, 14, 15, 3], [2, 3]]


def model_of(family: str, pooling: str) -> BertForSequenceClassification:
    torch.manual_seed(0)
    narrow = {"embedding_size": 8} if family in ("albert", "electra") else {}
    config = BertConfig(model_type=family, pooling=pooling, num_labels=3, pad_token_id=1, **SHAPE, **narrow)
    return BertForSequenceClassification(config).eval()


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny") / "m", BertForPreTraining)


def with_1_pooling(folder: Path, **modes: bool) -> Path:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16, **modes}))
    return folder


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_logits_are_the_classifier_on_the_pooled_tokens(family: str, pooling: str) -> None:
    model, batch = model_of(family, pooling), pack(SEQUENCES)
    with torch.inference_mode():
        tokens = model.bert.forward_packed(batch).last_hidden_state.split(batch.layout.lengths)
        pooled = torch.stack([x.mean(0) if pooling == "mean" else x.max(0).values for x in tokens])
        if model.layer is not None:
            pooled = model.layer(pooled)
        assert_close(model.forward_packed(batch).logits, model.classifier(pooled))
        assert_close(model.forward_packed(batch, output_hidden_states=True).logits, model.classifier(pooled))
    assert not [name for name, _ in model.named_parameters() if "pooler" in name]


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_saved_and_loaded_to_the_bit(family: str, pooling: str, tmp_path: Path) -> None:
    model, batch = model_of(family, pooling), pack(SEQUENCES)
    model.save_pretrained(tmp_path)
    with torch.inference_mode():
        expected = model.forward_packed(batch).logits
        for choose in (BertForSequenceClassification, AutoModelForSequenceClassification):
            again = choose.from_pretrained(tmp_path)
            assert again.config.pooling == pooling
            assert torch.equal(again.forward_packed(batch).logits, expected)
    assert again.load_report.new == again.load_report.unused == ()
    report = inspect(tmp_path)
    assert report.loadable
    assert "problem" not in report.render()


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_transformers_refuses_what_it_would_compute_otherwise(tmp_path: Path, pooling: str) -> None:
    import transformers

    model_of("bert", pooling).save_pretrained(tmp_path / "pooled")
    for choose, error in (
        (transformers.AutoModelForSequenceClassification, ValueError),
        (transformers.AutoModel, ValueError),
        (transformers.AutoConfig, ValueError),
        (transformers.BertForSequenceClassification, OSError),
        (transformers.BertModel, OSError),
    ):
        with pytest.raises(error):
            choose.from_pretrained(tmp_path / "pooled")
    model_of("bert", "cls").save_pretrained(tmp_path / "cls")  # control
    assert transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "cls")


def test_a_folder_holds_the_model_saved_last(tmp_path: Path) -> None:
    for pooling in ("mean", "cls", "max"):
        model_of("bert", pooling).save_pretrained(tmp_path)
        assert BertForSequenceClassification.from_pretrained(tmp_path).config.pooling == pooling
        assert len(list(tmp_path.glob("*.safetensors"))) == 1


@pytest.mark.parametrize(
    ("modes", "pooling"),
    [
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "mean"),  # both, one after the other
        ({"pooling_mode_weightedmean_tokens": True}, "cls"),
        (None, "cls"),
    ],
)
def test_a_new_classifier_pools_as_the_checkpoint_says(tmp_path: Path, modes: dict, pooling: str) -> None:
    folder = save_tiny(tmp_path / "m", BertModel)
    if modes is not None:
        with_1_pooling(folder, **modes)
    assert BertForSequenceClassification.from_pretrained(folder, num_labels=2).config.pooling == pooling
    chosen = BertForSequenceClassification.from_pretrained(folder, num_labels=2, pooling="max")
    assert chosen.config.pooling == "max"
    assert BertModel.from_pretrained(folder).config.pooling == "cls"


def test_a_trained_classifier_keeps_its_pooling(tmp_path: Path) -> None:
    model_of("bert", "cls").save_pretrained(tmp_path)
    with_1_pooling(tmp_path, pooling_mode_mean_tokens=True)
    assert BertForSequenceClassification.from_pretrained(tmp_path).config.pooling == "cls"
    with pytest.raises(ConfigError, match=r"was trained with pooling='cls', got 'mean'.*new_head=True"):
        BertForSequenceClassification.from_pretrained(tmp_path, pooling="mean")
    fresh = BertForSequenceClassification.from_pretrained(tmp_path, pooling="mean", new_head=True)
    assert fresh.load_report.new == ("classifier.weight", "classifier.bias")


def test_only_sequence_classifiers_choose(pretrained: Path, tmp_path: Path) -> None:
    for other in (BertForMaskedLM, BertForTokenClassification, BertModel):
        with pytest.raises(InputError, match="has no option pooling; only sequence classifiers have"):
            other.from_pretrained(pretrained, pooling="mean")
    with pytest.raises(InputError, match="must be 'cls', 'mean' or 'max', got 'sum'"):
        BertForSequenceClassification.from_pretrained(pretrained, num_labels=2, pooling="sum")
    model_of("bert", "mean").save_pretrained(tmp_path)
    encoder = BertModel.from_pretrained(tmp_path)  # which other software may load again
    assert encoder.config.pooling == "cls"
    assert "pooling" not in encoder.config.to_dict()


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", pytest.param("max", marks=pytest.mark.campaign)])
def test_exported_graphs_compute_the_same(pretrained: Path, tmp_path: Path, pooling: str) -> None:
    pytest.importorskip("onnxruntime")
    from bertkit.export.onnx_export import export_onnx
    from bertkit.inference.onnx_model import OnnxModel

    torch.manual_seed(1)
    model = BertForSequenceClassification.from_pretrained(pretrained, num_labels=3, pooling=pooling)
    tokenizer = AutoTokenizer.from_pretrained(pretrained)
    exported = export_onnx(model, tokenizer, tmp_path / "onnx", variants=("padded", "packed"))
    assert max(variant["largest_difference"] for variant in exported.variants.values()) < 1e-4
    texts = ["a b c", "a", "b c d e f g"]
    rows = tokenizer(texts)["input_ids"]
    with torch.inference_mode():
        expected = model.forward_packed(pack(rows)).logits.numpy()
    for variant in ("padded", "packed"):
        found = OnnxModel(tmp_path / "onnx", variant=variant)(texts)["logits"]
        np.testing.assert_allclose(np.stack(found), expected, atol=1e-4)


def test_pipelines_follow(pretrained: Path, tmp_path: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(pretrained, num_labels=3, pooling="mean")
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(pretrained).save_pretrained(tmp_path)
    pipe = pipeline("text-classification", model=tmp_path)
    assert pipe.model.config.pooling == "mean"
    assert pipe("a b c")[0]["label"] if isinstance(pipe("a b c"), list) else pipe("a b c")["label"]
