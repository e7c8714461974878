"""The name table: complete, unambiguous, reversible, and of one mind with the model classes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

import bertkit
from bertkit import BertConfig
from bertkit.checkpoints.apply import to_theirs
from bertkit.checkpoints.names import BERT
from bertkit.checkpoints.rules import layer_number, sizes
from bertkit.model.auto import MODEL_CLASSES

SHAPES = {
    "tiny": BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12),
    "no layers": BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=0, num_attention_heads=2),
    "base": BertConfig(num_labels=5),
    "large": BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
    "multilingual": BertConfig(vocab_size=119_547, type_vocab_size=3, max_position_embeddings=77),
}


def parts_of(head: str) -> list[str]:
    spec = BERT.classes[head]
    return ["encoder", *(["pooler"] if spec.pooler else []), *spec.heads]


def test_the_table_knows_every_class() -> None:
    assert BERT.classes.keys() | {"ElectraForPreTraining"} == MODEL_CLASSES.keys()
    for head, spec in BERT.classes.items():
        assert spec.base_prefix == MODEL_CLASSES[head].base_prefix
        assert not MODEL_CLASSES[head].label_head or spec.label_head
        roots = {rule.ours for part in spec.heads for rule in BERT.parts[part]}
        assert all(name.startswith(MODEL_CLASSES[head].head_prefixes) for name in roots)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("head", BERT.classes)
def test_names_and_shapes_are_those_of_the_model(head: str, shape: str) -> None:
    config, spec = SHAPES[shape], BERT.classes[head]
    with torch.device("meta"):
        model = MODEL_CLASSES[head](config)
    rules = [(part, rule) for part in parts_of(head) for rule in BERT.rules(part, config)]
    letters = sizes(config, spec)
    table = {BERT.written_prefix(part, spec.base_prefix) + r.ours: r.our_shape(letters) for part, r in rules}
    assert table == {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def test_names_are_unique_on_both_sides() -> None:
    rules = [rule for part in BERT.parts for rule in BERT.rules(part, SHAPES["tiny"])]
    for names in ([rule.ours for rule in rules], [name for rule in rules for name in rule.theirs]):
        assert max(Counter(names).values()) == 1
    known = {name for rule in rules for name in rule.theirs}
    assert not known & BERT.ignored
    assert not known & dict(BERT.ties).keys()
    assert known >= set(dict(BERT.ties).values())


def test_canonical_names() -> None:
    for name, canonical in {
        "bert.embeddings.LayerNorm.gamma": "embeddings.LayerNorm.weight",
        "embeddings.LayerNorm.beta": "embeddings.LayerNorm.bias",
        "bert.encoder.layer.3.output.LayerNorm.gamma": "encoder.layer.3.output.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.gamma": "cls.predictions.transform.LayerNorm.weight",
        "bert.pooler.dense.bias": "pooler.dense.bias",
        "bert.embeddings.position_ids": "embeddings.position_ids",
        "classifier.weight": "classifier.weight",
        "bert.classifier.weight": "bert.classifier.weight",
        "bert.bert.pooler.dense.bias": "bert.bert.pooler.dense.bias",
        "my.gamma": "my.gamma",
    }.items():
        assert BERT.canonical(name) == canonical
    names = [name for rule in BERT.rules("encoder", SHAPES["tiny"]) for name in rule.theirs]
    assert all(BERT.canonical(BERT.canonical(name)) == BERT.canonical(name) for name in names)


def test_layer_numbers() -> None:
    assert layer_number("encoder.layer.11.output.dense.bias") == 11
    assert layer_number("pooler.dense.bias") is None
    assert layer_number("encoder.layer.x.bias") is None


@pytest.mark.parametrize("head", BERT.classes)
def test_there_and_back_gives_the_same_bits(head: str, tmp_path: Path) -> None:
    config = SHAPES["tiny"].replace(num_labels=4)
    model = getattr(bertkit, head)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.save_pretrained(tmp_path)
    again = getattr(bertkit, head).from_pretrained(tmp_path)
    assert again.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    written = (tmp_path / "model.safetensors").read_bytes()
    again.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == written


def test_their_names_have_no_fused_matrix() -> None:
    model = bertkit.BertForMaskedLM(SHAPES["tiny"])
    names = {name for name, _ in to_theirs(model.state_dict(), model.config, BERT.classes["BertForMaskedLM"], BERT)}
    assert "bert.encoder.layer.1.attention.self.key.weight" in names
    assert not any("qkv" in name or "decoder" in name for name in names)
