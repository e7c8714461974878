"""LoRA adapters in a model: the formula, what is trained, which layers names reach, what is refused."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bertkit
from adapter_helpers import grads, settings, stir, trained
from bertkit import BertConfig, BertForSequenceClassification, BertForTokenClassification, BertModel
from bertkit.batch import pack
from bertkit.config.adapter_config import AdapterConfig
from bertkit.config.encoder_decoder_config import BartConfig, T5Config
from bertkit.engine.backend import Wanted
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.errors import CheckpointError, ConfigError, InputError
from bertkit.model.adapters import AdaptedLinear, adapted_layers, add_adapters, merge_adapters, unmerge_adapters
from bertkit.model.kernels.linear import Linear
from training_helpers import TINY, ToyData, no_dropout, tiny_model, toy_features, toy_trainer, weights

#: What its config has, names and how many layers with an adapter they reach. By family; ``text`` is for each layer.
NAMES = {
    "bert": ("query,value", 4), "roberta": ("attention.output.dense", 2), "camembert": ("self.key", 2),
    "xlm-roberta": ("output.dense", 4), "distilbert": ("q_lin,v_lin", 4), "albert": ("query,attention.dense,ffn", 3),
    "electra": ("key,intermediate.dense", 4), "mpnet": ("attn.q,o", 4), "deberta-v2": ("query_proj,key_proj", 4),
    "modernbert": ("Wqkv,mlp.Wo", 4), "bart": ("q_proj,fc2", 10), "t5": ("q,v,wi", 16),
}  # fmt: skip
SIZES = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24
}  # fmt: skip


def seq2seq(family: str) -> nn.Module:
    if family == "t5":
        shape = T5Config(
            vocab_size=40, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0
        )
        return bertkit.T5ForConditionalGeneration(shape)
    sizes = {f"{tower}_{name}": number for tower in ("encoder", "decoder") for name, number in
             {"layers": 2, "attention_heads": 2, "ffn_dim": 24}.items()}  # fmt: skip
    return bertkit.BartForConditionalGeneration(BartConfig(vocab_size=40, d_model=16, **sizes))


def model_of(family: str) -> nn.Module:
    if family in ("t5", "bart"):
        return seq2seq(family)
    disentangled = {"position_buckets": 6, "share_att_key": True, "pos_att_type": ["c2p", "p2c"]}
    own = {"modernbert": {"pad_token_id": 0}, "deberta-v2": disentangled}.get(family, {})
    return BertForSequenceClassification(BertConfig(model_type=family, **SIZES, **own))


def ids(model: BertForSequenceClassification, seed: int = 0) -> Tensor:
    return torch.randint(1, model.config.vocab_size, (4, 9), generator=torch.Generator().manual_seed(seed))


def largest(x: Tensor) -> float:
    return float(x.detach().abs().max())


# --------------------------------------------------------------------------------------------- the formula


@pytest.mark.parametrize("rank_stabilized", [False, True])
@pytest.mark.parametrize("has", [(True,), (True, False, True), (True, True), (False, True, False)])
def test_a_layer_and_its_gradients_are_those_of_the_sum(has: tuple[bool, ...], rank_stabilized: bool) -> None:
    """In float64, with GELU and for some rows: as of ``W + scale * B A`` part by part, by autograd."""
    config = AdapterConfig(r=3, lora_alpha=5, use_rslora=rank_stabilized)
    scale = 5 / (math.sqrt(3) if rank_stabilized else 3)
    plain = Linear(6, 4 * len(has)).double().requires_grad_(False)
    layer = AdaptedLinear(plain, has, config, torch.Generator().manual_seed(0))
    stir(layer)
    x = torch.randn(7, 6, dtype=torch.float64, requires_grad=True)

    def expected() -> Tensor:
        downs, ups = iter(layer.lora_A.split(3)), iter(layer.lora_B)
        parts = [
            rows + scale * next(ups) @ next(downs) if there else rows
            for rows, there in zip(plain.weight.chunk(len(has)), has, strict=True)
        ]
        return F.linear(x, torch.cat(parts), plain.bias)

    of = [x, layer.lora_A, layer.lora_B]
    for ours, theirs in (
        (layer(x), expected()),
        (layer(x, "gelu"), F.gelu(expected())),
        (layer.rows(x, slice(1, 4)), expected()[:, 1:4]),
    ):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)
        weight = torch.randn_like(ours)
        found, by_hand = (torch.autograd.grad((each * weight).sum(), of) for each in (ours, theirs))
        for own, other in zip(found, by_hand, strict=True):
            assert torch.allclose(own, other, rtol=0, atol=1e-11)


def test_new_adapters_change_nothing_and_random_ones_are_merged_and_taken_out() -> None:
    model = no_dropout().eval()
    before, given = weights(model), ids(model)
    plain = model(given).logits
    add_adapters(model, AdapterConfig(r=4))
    assert torch.equal(model(given).logits, plain)
    stir(model)
    adapted = model(given).logits
    assert largest(adapted - plain) > 0.1
    merge_adapters(model)
    assert largest(model(given).logits - adapted) < 1e-5
    merge_adapters(model)  # once
    assert largest(model(given).logits - adapted) < 1e-5
    with pytest.raises(InputError, match="unmerge_adapters"):
        model.train()
    unmerge_adapters(model)
    assert largest(model(given).logits - adapted) < 1e-5
    after = {name: p for name, p in weights(model).items() if name in before and "classifier" not in name}
    assert max(largest(p - before[name]) for name, p in after.items()) < 1e-6
    assert torch.equal(copy.deepcopy(model)(given).logits, model(given).logits)


def test_dropout_is_of_what_the_adapters_read_and_only_in_training() -> None:
    layer = AdaptedLinear(Linear(6, 5), (True,), AdapterConfig(r=2, lora_dropout=0.5), torch.Generator())
    stir(layer)
    x = torch.randn(20_000, 1).expand(-1, 6).contiguous()
    plain = F.linear(x, layer.weight, layer.bias)
    trained_on = (layer(x) - plain).detach()
    assert not torch.equal(trained_on, (layer(x) - plain).detach()), "another mask each time"
    layer.eval()
    added = (layer(x) - plain).detach()
    assert torch.equal(added, (layer(x) - plain).detach())
    slope = (trained_on * x[:, :1]).mean(0) / (added * x[:, :1]).mean(0)
    assert torch.allclose(slope, torch.ones(5), atol=0.1), "and the right mean"


@pytest.mark.parametrize("make", [InferenceEngine.of, InferenceEngine.for_scoring])
def test_the_engine_follows_adapters(make: Callable[..., InferenceEngine]) -> None:
    """Also where the library in C computes plain layers: not those with adapters."""
    model = no_dropout()
    engine, rows = make(model), toy_features(20)

    def logits() -> Tensor:
        return torch.from_numpy(engine.row_outputs(rows, Wanted(("logits",))))

    plain = logits()
    add_adapters(model, AdapterConfig(r=4))
    stir(model)
    with torch.no_grad():
        expected = model.eval().forward_packed(pack(ToyData(20).sequences)).logits
    assert largest(logits() - expected) < 3e-5
    assert largest(logits() - plain) > 0.1
    merge_adapters(model)
    assert largest(logits() - expected) < 4e-5  # merged weights are kept in 24 bits on some processors


# ---------------------------------------------------------------------------------------- what is trained


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_reach_adapters_and_head_alone(checkpointing: bool) -> None:
    model = tiny_model()
    model.set_gradient_checkpointing(checkpointing)
    add_adapters(model, AdapterConfig(r=2))
    data, before = ToyData(), weights(model)
    model.train()
    loss = model.forward_packed(data.batch(list(range(8)))).loss
    assert loss is not None
    loss.backward()
    head = {"classifier.weight", "classifier.bias"}
    assert grads(model) == trained(model) | head
    assert {name for name, p in model.named_parameters() if p.requires_grad} == trained(model) | head
    toy_trainer(model, data, num_steps=3).run()
    changed = {name for name, p in weights(model).items() if not torch.equal(p, before[name])}
    assert changed == trained(model) | head


def test_a_pooler_that_the_checkpoint_lacks_is_trained_and_saved_as_a_whole(tmp_path: Path) -> None:
    BertModel(TINY, add_pooling_layer=False).save_pretrained(tmp_path / "base")
    model = BertForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=3)
    where = str(tmp_path / "base")
    add_adapters(model, AdapterConfig(base_model_name_or_path=where, target_modules=("dense",)))
    assert not any("pooler" in name for name in adapted_layers(model))
    stir(model)
    model.save_pretrained(tmp_path / "adapter")
    assert settings(tmp_path / "adapter")["modules_to_save"] == ["pooler", "classifier"]
    again = BertForSequenceClassification.from_pretrained(tmp_path / "adapter")
    given = ids(model)
    assert largest(again(given).logits - model(given).logits) < 1e-5


@pytest.mark.campaign
@pytest.mark.slow
def test_a_toy_is_learned_nearly_as_well_as_by_the_whole_model() -> None:
    """Sequences whose label is that of their first token; the head alone, the control, learns few of them."""
    data, found = ToyData(60), {}
    for kind, rate in (("whole", 3e-3), ("adapters", 1e-2), ("head", 1e-2)):
        model = no_dropout()
        if kind != "whole":
            add_adapters(model, AdapterConfig(r=8, lora_alpha=16))
        for name, p in model.named_parameters():
            p.requires_grad_(p.requires_grad and (kind != "head" or name.startswith("classifier")))
        toy_trainer(model, data, num_steps=120, learning_rate=rate, evaluate=False).run()
        found[kind] = data.accuracy(model.eval())["accuracy"]
    assert found["whole"] > 0.95, found
    assert found["adapters"] > found["whole"] - 0.07, found
    assert found["head"] < 0.6, found


def test_a_resumed_training_ends_with_the_same_bits_and_its_states_hold_what_is_trained(tmp_path: Path) -> None:
    def adapted() -> BertForSequenceClassification:
        model = tiny_model()
        add_adapters(model, AdapterConfig(r=2, lora_dropout=0.1), seed=5)
        return model

    data, whole = ToyData(), adapted()
    toy_trainer(whole, data, num_steps=12).run()
    first = toy_trainer(adapted(), data, num_steps=12, folder=tmp_path)
    for _ in range(7):
        first.train_step()
    first.save()
    state = first.state_dict()
    names = {name for kind, _, name in (key.partition("/") for key in state.tensors) if kind == "model"}
    assert names == trained(whole) | {"classifier.weight", "classifier.bias"}
    second = adapted()
    trainer = toy_trainer(second, data, num_steps=12, folder=tmp_path, seed=99)
    assert trainer.resume()
    trainer.run()
    assert all(torch.equal(p, weights(whole)[name]) for name, p in weights(second).items())


# ---------------------------------------------------------------------------------------- names and refusals


@pytest.mark.parametrize("family", NAMES)
def test_names_of_each_family_reach_the_layers_that_they_name(family: str) -> None:
    names, number = NAMES[family]
    model = model_of(family)
    add_adapters(model, AdapterConfig(r=2, target_modules=tuple(names.split(","))))
    reached = [part for parts in model.adapters.places.values() for part in parts if part is not None]
    assert len(reached) == number, reached
    assert all(any(f".{part}".endswith(f".{name}") for name in names.split(",")) for part in reached)
    assert sum(len(layer.lora_B) for layer in adapted_layers(model).values()) == number
    whole = model_of(family)
    add_adapters(whole, AdapterConfig(r=2))
    assert len(adapted_layers(whole)) == sum(
        isinstance(part, Linear) and not name.startswith(("classifier", "lm_head", "bert.pooler", "layer."))
        for name, part in model_of(family).named_modules()
    ) + ("bert.pooler.dense" in adapted_layers(whole))


def test_an_unknown_name_lists_what_there_is() -> None:
    model = tiny_model()
    with pytest.raises(
        ConfigError, match=r"'querry' \(did you mean 'query'\?\).* has dense, key, query, value.*all-lin"
    ):
        add_adapters(model, AdapterConfig(target_modules=("value", "querry")))
    assert not adapted_layers(model)
    assert all(p.requires_grad for p in model.parameters()), "nothing was changed"
    with pytest.raises(ConfigError, match="'classifier'"):
        add_adapters(model, AdapterConfig(target_modules=("classifier",)))  # trained as a whole
    with pytest.raises(ConfigError, match="rank_pattern"):
        add_adapters(model, AdapterConfig(rank_pattern={"query": 3}))


def test_what_cannot_be_adapted_or_saved_apart(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path / "base")
    model, where = BertForSequenceClassification.from_pretrained(tmp_path / "base"), str(tmp_path / "base")
    add_adapters(model, AdapterConfig(base_model_name_or_path=where))
    with pytest.raises(InputError, match="already"):
        add_adapters(model, AdapterConfig())
    model.save_pretrained(tmp_path / "adapter")
    again = BertForSequenceClassification.from_pretrained(tmp_path / "adapter")
    with pytest.raises(CheckpointError, match=r"is an adapter.*\n.*bertkit convert"):
        add_adapters(again, AdapterConfig(base_model_name_or_path=str(tmp_path / "adapter")))
    add_adapters(again, AdapterConfig())
    with pytest.raises(InputError, match="merge_adapters"):
        again.save_pretrained(tmp_path / "other")
    stir(again)
    merge_adapters(again)
    again.save_pretrained(tmp_path / "other")
    other = BertForSequenceClassification.from_pretrained(tmp_path / "other")
    given = ids(other)
    assert torch.equal(other(given).logits, again.eval()(given).logits)
    with pytest.raises(ConfigError, match="r = 0"):
        AdapterConfig(r=0)


def test_a_folder_holds_the_model_that_was_saved_last(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path / "base")
    model = BertForTokenClassification.from_pretrained(tmp_path / "base", num_labels=3, new_head=True)
    add_adapters(model, AdapterConfig(base_model_name_or_path=str(tmp_path / "base")))
    stir(model)
    given, folder = ids(model), tmp_path / "model"
    for step in (None, merge_adapters, unmerge_adapters):
        if step is not None:
            step(model)
        model.save_pretrained(folder)
        names = {file.name for file in folder.iterdir()}
        own = {"model.safetensors"} if step is merge_adapters else {"adapter_config.json", "adapter_model.safetensors"}
        assert names == {"config.json", *own}
        again = BertForTokenClassification.from_pretrained(folder)
        assert largest(again(given).logits - model(given).logits) < 1e-5


def test_adapters_are_not_saved_over_their_base(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path / "m")
    model = type(tiny_model()).from_pretrained(tmp_path / "m")
    add_adapters(model, AdapterConfig(base_model_name_or_path=str(tmp_path / "m")))
    with pytest.raises(InputError, match="holds the model that the adapters change"):
        model.save_pretrained(tmp_path / "m")
    type(tiny_model()).from_pretrained(tmp_path / "m")
    model.save_pretrained(tmp_path / "adapters")


def test_new_rows_and_adapters_do_not_go_together(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path / "m")
    kind, base = type(tiny_model()), AdapterConfig(base_model_name_or_path=str(tmp_path / "m"))
    adapted = kind.from_pretrained(tmp_path / "m")
    add_adapters(adapted, base)
    with pytest.raises(InputError, match="new rows are no part of adapters"):
        adapted.resize_token_embeddings(TINY.vocab_size + 2)
    grown = kind.from_pretrained(tmp_path / "m")
    grown.resize_token_embeddings(TINY.vocab_size + 2)
    with pytest.raises(InputError, match="word embeddings"):
        add_adapters(grown, base)
