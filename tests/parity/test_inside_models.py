"""The inside of a model by the names that it has in transformers: equal values, and errors that name ours."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

from bertkit import BertConfig, BertModel, InputError, ModernBertConfig, ModernBertModel
from bertkit.model.auto import AutoModel

SHAPE: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 20,
}  # fmt: skip
IDS = torch.tensor([[2, 7, 9, 3], [2, 11, 3, 0]])
LINEAR = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
PLACES = (*LINEAR, "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm")


def at(module: Any, place: str) -> Any:
    for name in place.split("."):
        module = getattr(module, name)
    return module


@pytest.fixture(params=["bert", "roberta", "electra"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any]:
    torch.manual_seed(0)
    more = {"embedding_size": 8} if request.param == "electra" else {}
    config = transformers.AutoConfig.for_model(request.param, **SHAPE, **more)
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    return transformers.AutoModel.from_pretrained(tmp_path).eval(), AutoModel.from_pretrained(tmp_path)


def test_every_part_of_a_layer_is_there_and_computes_the_same(both: tuple[Any, Any]) -> None:
    x, inner = torch.randn(3, 16), torch.randn(3, 24)
    for theirs, ours in zip(*(model.encoder.layer for model in both), strict=True):
        for place in PLACES:
            there, here = at(theirs, place), at(ours, place)
            assert torch.equal(there.weight, here.weight), place
            assert torch.equal(there.bias, here.bias), place
            given = inner if place == "output.dense" else x
            torch.testing.assert_close(here(given), there(given), msg=place)
        assert ours.attention.self.query.in_features == ours.attention.self.query.out_features == 16
        torch.testing.assert_close(ours.intermediate(x), theirs.intermediate(x))
        torch.testing.assert_close(ours.output(inner, x), theirs.output(inner, x))
        torch.testing.assert_close(ours.attention.output(x, x), theirs.attention.output(x, x))
        for name in ("num_attention_heads", "attention_head_size", "all_head_size"):
            assert getattr(ours.attention.self, name) == getattr(theirs.attention.self, name)


def test_embeddings_are_called_with_padded_ids(both: tuple[Any, Any]) -> None:
    theirs, ours = both
    segments = torch.zeros_like(IDS) if theirs.config.model_type == "roberta" else torch.tensor([[0, 0, 1, 1]] * 2)
    places = torch.tensor([[3, 4, 5, 6]])
    vectors = ours.embeddings.word_embeddings(IDS)
    calls: tuple[dict[str, Any], ...] = (
        {"input_ids": IDS},
        {"input_ids": IDS, "token_type_ids": segments, "position_ids": places},
        {"inputs_embeds": vectors},
    )
    for call in calls:
        expected = theirs.embeddings(**call)
        if theirs.config.model_type == "electra":  # whose embeddings end before the projection
            expected = theirs.embeddings_project(expected)
        torch.testing.assert_close(ours.embeddings(**call), expected)
    assert torch.equal(ours.embeddings(IDS), ours.embeddings(IDS, None))
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm"):
        assert torch.equal(getattr(ours.embeddings, name).weight, getattr(theirs.embeddings, name).weight)
    with pytest.raises(InputError, match="give input_ids or inputs_embeds"):
        ours.embeddings()


def test_the_encoder_is_called_with_padded_vectors(both: tuple[Any, Any]) -> None:
    theirs, ours = both
    x = ours.embeddings(IDS)
    torch.testing.assert_close(ours.encoder(x).last_hidden_state, theirs.encoder(x).last_hidden_state)
    assert torch.equal(ours.encoder(x)[0], ours.encoder(x, torch.ones(2, 4)).last_hidden_state)
    cut = ours.encoder(x, attention_mask=torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]))[0]
    torch.testing.assert_close(cut[1, :3], ours.encoder(x[1:, :3])[0][0])
    if theirs.config.model_type == "bert":
        torch.testing.assert_close(ours.pooler(x), theirs.pooler(x))
    with pytest.raises(InputError, match=r"attention_mask must have shape \(batch, sequence\), 1 at real tokens"):
        ours.encoder(x, torch.zeros(2, 1, 1, 4))
    with pytest.raises(InputError, match="expected vectors of shape"):
        ours.encoder(x[0])


def test_layers_are_started_anew_by_one_method(both: tuple[Any, Any]) -> None:
    _, model = both  # transformers 5 leaves what was loaded as it is
    layer = model.encoder.layer[-1]
    torch.nn.init.ones_(layer.output.LayerNorm.bias)
    before = layer.intermediate.dense.weight.clone()
    layer.apply(model._init_weights)
    weight = layer.intermediate.dense.weight
    assert not torch.equal(weight, before)
    assert 0.01 < float(weight.detach().std()) < 0.03
    assert not layer.output.LayerNorm.bias.any()
    assert (layer.output.LayerNorm.weight == 1).all()


@pytest.mark.parametrize("place", PLACES[3:])
def test_hooks_see_what_they_see_there_row_by_row(place: str, both: tuple[Any, Any]) -> None:
    seen: list[torch.Tensor] = []
    for model in both:
        layer = model.encoder.layer[1]
        at(layer, place).register_forward_hook(lambda module, args, out: seen.append(out.detach()))
        with torch.inference_mode():
            model(IDS[:1])
    theirs, ours = seen
    torch.testing.assert_close(ours, theirs[0])


def test_gradients_of_a_part_and_writing_into_it(both: tuple[Any, Any]) -> None:
    for model in both:
        model(IDS).last_hidden_state.square().sum().backward()
    theirs, ours = (model.encoder.layer[0].attention.self.key for model in both)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)
    for model in both:
        key = model.encoder.layer[0].attention.self.key
        with torch.no_grad():
            key.weight.mul_(2)
            key.bias.data.fill_(0.5)
            nn.init.zeros_(model.encoder.layer[1].attention.self.value.weight)
    theirs, ours = (model(IDS[:1]).last_hidden_state for model in both)
    torch.testing.assert_close(ours, theirs)


def test_what_would_be_lost_is_an_error_that_names_ours() -> None:
    layer: Any = BertModel(BertConfig(**SHAPE)).encoder.layer[0]
    query = layer.attention.self.query
    with pytest.raises(InputError, match=r"attention\.qkv, one matrix .* outputs 0 to 16 are the query"):
        query.weight = nn.Parameter(torch.zeros(16, 16))
    with pytest.raises(InputError, match=r"layer\.attention\.self\.query cannot be assigned; change layer\.attention"):
        layer.attention.self.query = nn.Linear(16, 16)
    with pytest.raises(InputError, match=r"query\.weight\.data\.copy_"):
        query.weight.data = torch.zeros(16, 16)
    with pytest.raises(InputError, match=r"qkv\.requires_grad_\(False\)"):
        query.weight.requires_grad = False
    with pytest.raises(AttributeError, match=r"no 'register_forward_hook'; write layer\.attention\.qkv"):
        query.register_forward_hook(print)
    with pytest.raises(InputError, match=r"layer\.attention\(x, layout\)"):
        layer.attention.self(torch.zeros(1, 4, 16))
    for owner, name in ((layer, "output"), (layer, "intermediate"), (layer.attention, "self")):
        with pytest.raises(InputError, match=r"cannot be assigned; change (layer|attention)\."):
            setattr(owner, name, nn.Linear(16, 16))
    assert "attention.out.weight" in dict(layer.named_parameters())
    assert len(list(layer.parameters())) == 12
    assert dir(layer.output) == ["LayerNorm", "dense", "dropout"]
    assert "query" in repr(layer.attention.self)


def test_copies_have_parts_of_their_own_and_a_new_norm_is_seen() -> None:
    model = BertModel(BertConfig(**SHAPE)).eval()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        layer: Any = twin.encoder.layer[0]
        assert layer.attention.output.LayerNorm is layer.attention_norm is not model.encoder.layer[0].attention_norm
        assert torch.equal(twin(IDS).last_hidden_state, model(IDS).last_hidden_state)
    layer = model.encoder.layer[0]
    layer.attention_norm = nn.LayerNorm(16)
    assert layer.attention.output.LayerNorm is layer.attention_norm


def test_layers_of_another_kind_have_none_of_these_names() -> None:
    more = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
    layer = ModernBertModel(ModernBertConfig(**SHAPE, **more)).encoder.layer[0]
    for owner, name in ((layer, "output"), (layer, "intermediate"), (layer.attention, "output")):
        assert not hasattr(owner, name)
