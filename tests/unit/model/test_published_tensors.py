"""Parameters by their published names: each is the one that the other library has there, and can be written into."""

from __future__ import annotations

import copy
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import bertkit
from bertkit.errors import InputError

SMALL = {"vocab_size": 40, "hidden_size": 24, "intermediate_size": 36, "num_attention_heads": 2, "num_hidden_layers": 2}
BART = {"vocab_size": 40, "d_model": 24, "encoder_layers": 2, "decoder_layers": 1, "max_position_embeddings": 20}
BART |= {f"{half}_attention_heads": 2 for half in ("encoder", "decoder")}
BART |= {f"{half}_ffn_dim": 36 for half in ("encoder", "decoder")}
T5 = {"vocab_size": 40, "d_model": 24, "d_kv": 8, "d_ff": 36, "num_layers": 2, "num_heads": 3}
DISTIL = {"vocab_size": 40, "dim": 24, "hidden_dim": 36, "n_heads": 2, "n_layers": 2}
MODELS = {
    "DistilBertForSequenceClassification": lambda: bertkit.DistilBertConfig(**DISTIL),
    "DistilBertForMaskedLM": lambda: bertkit.DistilBertConfig(**DISTIL),
    "BartForConditionalGeneration": lambda: bertkit.BartConfig(**BART),
    "BartForSequenceClassification": lambda: bertkit.BartConfig(**BART),
    "BartModel": lambda: bertkit.BartConfig(**BART),
    "T5ForConditionalGeneration": lambda: bertkit.T5Config(**T5, decoder_start_token_id=0),
    "RobertaForSequenceClassification": lambda: bertkit.RobertaConfig(**SMALL),
    "ElectraForSequenceClassification": lambda: bertkit.ElectraConfig(**SMALL, embedding_size=24),
    "ModernBertForSequenceClassification": lambda: bertkit.ModernBertConfig(
        **SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
    ),
}


def walk(model: Any, name: str) -> Any:
    """What stands at a dotted name, as somebody types it."""
    return reduce(
        lambda found, part: found[int(part)] if part.isdecimal() else getattr(found, part), name.split("."), model
    )


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_of_the_other_library_is_there_under_its_name(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    ours = getattr(bertkit, name)(MODELS[name]())
    ours.save_pretrained(tmp_path)
    theirs = getattr(transformers, name).from_pretrained(tmp_path)
    inside = {each: value for each, value in theirs.named_parameters() if ".embeddings." not in each}
    inside = {each: value for each, value in inside.items() if "shared" not in each and "vocab_projector" not in each}
    missing = [each for each in inside if not torch.equal(torch.as_tensor(walk(ours, each)), inside[each])]
    assert len(inside) > 15
    assert missing == []


def test_layers_are_frozen_and_written_into_as_there(tmp_path: Path) -> None:
    model = bertkit.DistilBertForSequenceClassification(MODELS["DistilBertForSequenceClassification"]())
    model.save_pretrained(tmp_path)
    theirs = transformers.DistilBertForSequenceClassification.from_pretrained(tmp_path)
    for each in (model, theirs):
        for parameter in each.distilbert.parameters():
            parameter.requires_grad = False
        for layer in each.distilbert.transformer.layer[-1:]:
            for parameter in layer.parameters():
                parameter.requires_grad = True
    assert model.num_parameters(only_trainable=True) == theirs.num_parameters(only_trainable=True)
    query = model.distilbert.transformer.layer[1].attention.q_lin
    with torch.no_grad():
        query.weight.fill_(2.0)
        query.bias.copy_(torch.arange(24.0))
    ours = model.bert.encoder.layer[1].attention.qkv
    assert ours.weight[:24].eq(2).all()
    assert not ours.weight[24:].eq(2).any()
    assert ours.bias[:24].tolist() == list(range(24))
    with pytest.raises(InputError, match="one matrix"):
        next(query.parameters()).requires_grad = False
    for change in (
        lambda: setattr(query, "weight", torch.zeros(24, 24)),
        lambda: query(torch.zeros(1, 24)),
        lambda: query.register_forward_hook(print),
    ):
        with pytest.raises(InputError, match=r"q_lin.*encoder.layer.1.attention.qkv.weight"):
            change()
    with pytest.raises(
        AttributeError, match=r"transformer\.layer\.0 has no 'crossattention'; it has attention, sa_layer"
    ):
        _ = model.distilbert.transformer.layer[0].crossattention
    assert len(model.distilbert.transformer.layer) == 2
    with pytest.raises(TypeError, match="no list"):
        len(model.distilbert.transformer)


def test_the_layer_before_a_classifier_is_no_part_of_the_encoder(tmp_path: Path) -> None:
    model = bertkit.RobertaForSequenceClassification(MODELS["RobertaForSequenceClassification"]())
    model.save_pretrained(tmp_path)
    theirs = transformers.RobertaForSequenceClassification.from_pretrained(tmp_path)
    for each in (model, theirs):
        each.base_model.requires_grad_(False)
    assert model.num_parameters(only_trainable=True) == theirs.num_parameters(only_trainable=True)
    assert model.classifier.dense.weight.requires_grad
    with pytest.raises(InputError, match=r"'out_proj' .* cannot be assigned; change model.classifier"):
        model.classifier.out_proj = torch.nn.Linear(24, 3)
    copied = copy.deepcopy(model)
    assert copied.classifier.dense is copied.bert.pooler.dense
    assert copied.classifier.out_proj is copied.classifier
