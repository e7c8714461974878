"""BART and T5 in pre-training: the objective of the family, its examples and scores, runs that go on bit for bit."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

import bertkit
from bertkit.data.examples.denoising_batches import NO_TARGET, DenoisingData, DenoisingVocabulary
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError
from bertkit.model.kernels import products
from bertkit.model.seq2seq.conditional_generation import ConditionalGeneration
from bertkit.optim import OPTIMIZERS
from bertkit.system.interrupts import Interrupted
from bertkit.training.pretraining.initial_model import make_network, with_dropout
from bertkit.training.pretraining.objectives import with_objective
from bertkit.training.pretraining.operations import training_flops
from bertkit.training.pretraining.pretrain import pretrain
from bertkit.training.pretraining.pretrain_data import held_out_data, loss_floor, training_data, vocabulary_of
from bertkit.training.pretraining.pretrain_settings import PretrainConfig
from bertkit.training.trainer.batch_plan import Prefetched
from denoising_runs import FAMILIES, OBJECTIVES, Stores, make_stores, settings, shape_of
from pretrain_helpers import FIRST, ToyTokens, batch_of
from pretrain_runs import SHAPE, interrupt_after, weights


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stores]:
    made = {family: make_stores(family, tmp_path_factory.mktemp(family)) for family in ("t5", "bart")}
    return {**made, "mbart": made["bart"]}


def with_family(family: str, store: TokenStore, **changes: Any) -> PretrainConfig:
    return with_objective(settings(family, **changes), shape_of(family, store))


def test_bf16_is_never_the_default(stores: dict[str, Stores], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.training.pretraining.pretrain.fastest_precision", lambda device: "bf16")
    store = stores["t5"][0]
    one = settings("t5", precision=None, max_steps=1)
    first = pretrain(store, tmp_path / "new", one, model=shape_of("t5", store))
    pretrain(store, tmp_path / "more", one, model=first.model)
    for run in ("new", "more"):
        assert json.loads((tmp_path / run / "metrics.json").read_text())["settings"]["precision"] == "fp32"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_objective_is_that_of_the_family(stores: dict[str, Stores], tmp_path: Path, family: str) -> None:
    store = stores[family][0]
    shape, expected = shape_of(family, store), OBJECTIVES[family]
    network, _ = make_network(shape, store, with_objective(settings(family), shape))
    network.save_pretrained(tmp_path)
    for model in (shape, network, tmp_path):
        assert with_objective(settings(family), model).objective == expected
    for other in ("mlm", "mlm+nsp", "span-corruption", "text-infilling"):
        if other != expected:
            with pytest.raises(
                ConfigError, match=rf"{family} family, which (writes|has a|has sent).*--objective {expected}"
            ):
                make_network(shape, store, settings(family, objective=other))
    with pytest.raises(ConfigError, match=r"bert family, which has no decoder .*--objective mlm\+nsp"):
        make_network(SHAPE, store, settings(family, objective=expected))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["t5", pytest.param("bart", marks=pytest.mark.campaign)])
def test_a_stopped_run_goes_on_bit_for_bit(
    stores: dict[str, Stores], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    """With dropout, two lengths, evaluations and batches made ahead by any number of threads."""
    train, dev = stores[family]
    shape = shape_of(family, train)
    config = settings(family, eval_every_steps=4, num_workers=0, max_seq_length=16, short_seq_length=8, short_share=0.5)
    whole = pretrain(train, tmp_path / "whole", config, model=shape, dev=dev)
    assert set(whole.scores) == {"denoising_loss", "denoising_accuracy"}
    interrupt_after(monkeypatch, 2, 5)
    for _ in range(2):
        with pytest.raises(Interrupted):
            pretrain(train, tmp_path / "parts", config.replace(num_workers=2), model=shape, dev=dev)
    monkeypatch.undo()
    parts = pretrain(train, tmp_path / "parts", config.replace(num_workers=1), model=shape, dev=dev)
    assert parts.scores == whole.scores
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    again = pretrain(train, tmp_path / "seed", config.replace(seed=1), model=shape)  # control
    assert any(not torch.equal(one[name], value) for name, value in weights(again.model.parent).items())
    told = json.loads((tmp_path / "whole" / "metrics.json").read_text())
    assert told["noise"] == {"rate": 0.15 if family == "t5" else 0.3, "mean_span": 3.0}
    assert told["speed"]["peak_share"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_transformers(stores: dict[str, Stores], tmp_path: Path, family: str) -> None:
    """Loss and accuracy of each held-out example by itself, by the model that it reads from the run's folder."""
    train, dev = stores[family]
    config = with_family(family, train, max_steps=2)
    result = pretrain(train, tmp_path / "run", config, model=shape_of(family, train), dev=dev)
    theirs, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(result.model, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    data = held_out_data(dev, vocabulary_of(dev, config), config)
    losses, hits = [], []
    for row in data.rows(0):
        batch = batch_of(data, [row])  # type: ignore[arg-type]
        labels = batch.targets["labels"]
        with torch.no_grad():
            out = theirs.eval()(input_ids=batch.input_ids[None], labels=labels)
        losses += torch.nn.functional.cross_entropy(out.logits[0], labels[0], reduction="none").tolist()
        hits += (out.logits[0].argmax(-1) == labels[0]).tolist()
    assert result.scores["denoising_loss"] == pytest.approx(np.mean(losses), abs=1e-4)
    assert result.scores["denoising_accuracy"] == pytest.approx(np.mean(hits), abs=1e-6)


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_an_example_depends_on_seed_epoch_and_number_alone(stores: dict[str, Stores], family: str) -> None:
    store = stores[family][0]

    def examples(config: PretrainConfig, num_workers: int = 0, **ranks: int) -> Counter[tuple[Any, ...]]:
        """Source and target of each example of the first two epochs."""
        plan: Any = training_data(store, vocabulary_of(store, config), config, **ranks)
        found: Counter[tuple[Any, ...]] = Counter()
        with Prefetched(plan, num_workers=num_workers) as ahead:
            for step in range(2 * plan.steps_per_epoch):
                for batch in ahead.micro_batches(step):
                    targets = batch.targets["labels"].tolist()
                    for (start, end), labels in zip(batch.layout.spans(), targets, strict=True):
                        target = tuple(label for label in labels if label != NO_TARGET)
                        found[step // plan.steps_per_epoch, tuple(batch.input_ids[start:end].tolist()), target] += 1
        return found

    config = with_family(family, store, max_seq_length=64)
    base = examples(config)
    assert examples(config.replace(max_tokens=100), num_workers=3) == base
    assert examples(config.replace(batch_size=7), num_workers=1) == base
    shares = [examples(config, rank=rank, num_ranks=2) for rank in range(2)]
    assert shares[0] + shares[1] == base
    assert examples(config.replace(seed=1)) != base  # control
    assert {key[1:] for key in base if key[0] == 0} != {key[1:] for key in base if key[0] == 1}


LONG = ToyTokens.of([[40] * 25] * 60)
SPECIAL = {name: FIRST + LONG.num_tokens + place for place, name in enumerate(("before", "behind", "mask"))}
#: Of all kinds of tokenizers together.
ANY = DenoisingVocabulary(
    SPECIAL["mask"] + 101,
    (),
    (SPECIAL["behind"],),
    SPECIAL["mask"],
    tuple(range(SPECIAL["mask"] + 1, SPECIAL["mask"] + 101)),
)


def published(objective: Any, **changes: Any) -> tuple[int, int, int]:
    """Tokens of the texts, tokens that were removed, and spans, of an epoch of examples of 512 tokens."""
    config = PretrainConfig(objective=objective, max_seq_length=512, batch_size=16, **changes)
    plan: Any = training_data(LONG, ANY, config)  # type: ignore[arg-type]
    texts = removed = spans = 0
    marks = ANY.sentinels if objective == "span-corruption" else (ANY.mask_id,)
    for step in range(plan.steps_per_epoch):
        for batch in plan.micro_batches(step):
            is_mark = np.isin(batch.input_ids.numpy(), marks)
            kept = int((~is_mark).sum()) - batch.layout.num_sequences
            labels = batch.targets["labels"].numpy()
            written = int(((labels >= FIRST) & (labels < SPECIAL["before"])).sum())
            texts += written if objective == "text-infilling" else kept + written
            removed += written - kept if objective == "text-infilling" else written
            spans += int(is_mark.sum())
    return texts, removed, spans


def test_the_published_proportions_hold_through_the_loader() -> None:
    """T5: 15 % in spans of 3 on average; BART: 30 %, Poisson's with mean 3, those of no tokens included."""
    texts, removed, spans = published("span-corruption")
    assert texts == published("text-infilling")[0] == LONG.num_tokens
    assert removed / texts == pytest.approx(0.15, abs=0.002)
    assert removed / spans == pytest.approx(3.0, abs=0.05)
    texts, removed, spans = published("text-infilling")
    assert removed / texts == pytest.approx(0.30, abs=0.002)
    assert removed / spans == pytest.approx(3.0, abs=0.1)
    texts, removed, spans = published("span-corruption", noise_density=0.3, mean_span_length=6)  # control
    assert (removed / texts, removed / spans) == (pytest.approx(0.3, abs=0.002), pytest.approx(6.0, abs=0.1))


def test_held_out_text_is_damaged_as_published_whatever_training_does(stores: dict[str, Stores]) -> None:
    store = stores["t5"][1]
    plain, other = (
        with_family("t5", store, **more) for more in ({}, {"noise_density": 0.5, "seed": 3, "batch_size": 7})
    )
    batches = [
        batch_of(held_out_data(store, vocabulary_of(store, config), config), range(9)) for config in (plain, other)
    ]  # type: ignore[arg-type]
    assert torch.equal(batches[0].input_ids, batches[1].input_ids)
    training = [
        batch_of(training_data(store, vocabulary_of(store, config), config), range(9))
        for config in (plain, other)  # type: ignore[arg-type]
    ]
    assert training[0].layout.num_tokens > training[1].layout.num_tokens  # control


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_the_floor_is_the_entropy_of_the_targets(stores: dict[str, Stores], family: str) -> None:
    """Against a plain count of all targets of an epoch; the specials are counted in a part of it only."""
    store = stores[family][0]
    config = with_family(family, store)
    vocabulary = vocabulary_of(store, config)
    plan: Any = training_data(store, vocabulary, config)
    counts: Counter[int] = Counter()
    for step in range(plan.steps_per_epoch):
        for batch in plan.micro_batches(step):
            counts.update(batch.targets["labels"].flatten().tolist())
    del counts[NO_TARGET]
    expected = -sum(count / counts.total() * math.log(count / counts.total()) for count in counts.values())
    assert loss_floor(store, vocabulary, plan) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("kind", ["t5", "t5 v1.1", "bart"])
def test_flops_are_those_that_torch_counts(stores: dict[str, Stores], kind: str, monkeypatch: Any) -> None:
    """But for later tokens of a target, which torch compares and then hides. Lengths are alike: nothing is padded."""
    family = kind.split()[0]
    store = stores[family][0]
    changes: dict[str, Any] = {"t5": {"num_decoder_layers": 2}, "bart": {"decoder_layers": 2, "encoder_ffn_dim": 96}}[
        family
    ]
    if kind == "t5 v1.1":
        changes = {**changes, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    shape: Any = with_dropout(shape_of(family, store, d_model=64, **changes), 0.0)
    network = make_network(shape, store, with_family(family, store))[0].train()
    data: Any = training_data(store, vocabulary_of(store, with_family(family, store)), with_family(family, store))
    alike = [batch_of(data, [row]).layout.num_tokens for row in range(100)]
    batch = batch_of(data, [row for row in range(100) if alike[row] == max(set(alike), key=alike.count)])
    monkeypatch.setattr(products, "_plain_product", lambda: None)  # torch counts its own products only
    with FlopCounterMode(display=False) as counter:
        network.forward_packed(batch).loss.backward()
    assert training_flops(batch, shape) == pytest.approx(counter.get_total_flops(), rel=0.03)
    wider = shape.replace(d_ff=2 * shape.d_ff) if family == "t5" else shape.replace(encoder_ffn_dim=192)
    assert training_flops(batch, wider) > 1.05 * training_flops(batch, shape)  # control


@pytest.mark.campaign
@pytest.mark.slow
def test_less_memory(stores: dict[str, Stores], tmp_path: Path) -> None:
    """Layers computed again give the same bits, with dropout; bf16 gives others, near them."""
    for family in ("t5", "bart"):
        store, made = stores[family][0], {}
        for name, change in (
            ("plain", {}),
            ("again", {"gradient_checkpointing": True}),
            ("bf16", {"precision": "bf16"}),
        ):
            out = tmp_path / family / name
            pretrain(store, out, settings(family, max_steps=2, **change), model=shape_of(family, store))
            made[name] = weights(out)
        assert all(torch.equal(value, made["again"][name]) for name, value in made["plain"].items())
        assert any(not torch.equal(value, made["bf16"][name]) for name, value in made["plain"].items())
        assert all(torch.allclose(value, made["bf16"][name], atol=0.05) for name, value in made["plain"].items())


def test_gradient_checkpointing_computes_layers_again(stores: dict[str, Stores]) -> None:
    store = stores["t5"][0]
    network, _ = make_network(shape_of("t5", store), store, with_family("t5", store))
    assert isinstance(network, ConditionalGeneration)
    passes: list[str] = []
    for name, module in network.named_modules():
        if name.endswith("layer.0"):
            module.register_forward_pre_hook(lambda *_, name=name: passes.append(name))
    config = with_family("t5", store)
    batch = batch_of(training_data(store, vocabulary_of(store, config), config), [0, 1])  # type: ignore[arg-type]
    for enabled in (False, True):
        passes.clear()
        network.set_gradient_checkpointing(enabled)
        loss = network.train().forward_packed(batch).loss
        assert loss is not None
        loss.backward()
        assert Counter(passes) == dict.fromkeys(("model.encoder.layer.0", "model.decoder.layer.0"), 1 + enabled)


@pytest.mark.slow
def test_every_optimizer_treats_both_halves_alike(stores: dict[str, Stores], tmp_path: Path) -> None:
    store = stores["t5"][0]
    for name in OPTIMIZERS:
        result = pretrain(
            store, tmp_path / name, settings("t5", max_steps=1, optimizer=name), model=shape_of("t5", store)
        )
        assert math.isfinite(result.progression.epochs[-1]["train_loss"])
    network, _ = make_network(shape_of("t5", store), store, with_family("t5", store))
    groups = OPTIMIZERS["muon"](
        bertkit.optim.parameter_groups(network), learning_rate=0.1, betas=(0.9, 0.99)
    ).param_groups
    hidden = {name for group in groups if group["orthogonal"] for name in group["names"]}
    expected = {name for name, value in network.named_parameters() if ".layer." in name and value.ndim == 2}
    assert hidden == expected
    assert {name.split(".")[1] for name in hidden} == {"encoder", "decoder"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_goes_on_as_it_is(stores: dict[str, Stores], tmp_path: Path, family: str) -> None:
    store = stores[family][0]
    network, _ = make_network(shape_of(family, store), store, with_family(family, store))
    assert isinstance(network, ConditionalGeneration)
    network.generation_settings = network.generation_settings.replace(num_beams=3)
    network.save_pretrained(tmp_path / "start")
    store.tokenizer().save_pretrained(tmp_path / "start")
    again, start = make_network(tmp_path / "start", store, with_family(family, store, dropout=0.3))
    assert isinstance(again, ConditionalGeneration)
    assert (start.source, start.new_parts, start.untrained) == (str(tmp_path / "start"), (), ())
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in network.state_dict().items())
    assert again.config.tower(decoder=True).dropout == again.config.tower(decoder=False).attention_dropout == 0.3
    result = pretrain(store, tmp_path / "run", settings(family, max_steps=1, dropout=0.3), model=tmp_path / "start")
    assert json.loads((result.model / "generation_config.json").read_text())["num_beams"] == 3


def test_what_does_not_fit_is_refused(stores: dict[str, Stores], tmp_path: Path) -> None:
    store = stores["t5"][0]
    t5, bart = shape_of("t5", store), shape_of("bart", store)
    mbart = shape_of("mbart", store, decoder_start_token_id=2).replace(decoder_start_token_id=2)
    for model, changes, told in (
        (t5.replace(vocab_size=20), {}, r"vocab_size=20, but the tokenizer of .* has 29"),
        (t5.replace(eos_token_id=1), {}, r"the model has {'eos_token_id': 1}, the tokenizer of .* {'eos_token_id': 3}"),
        (bart.replace(pad_token_id=2), {}, r"{'pad_token_id': 2}, the tokenizer of .* {'pad_token_id': 0}"),
        (mbart, {}, r"{'decoder_start_token_id': 2}, the tokenizer of .* {'decoder_start_token_id': 3}"),
        (bart, {"max_seq_length": 33}, r"max_position_embeddings=32; use at most 32"),
        (t5, {"max_seq_length": 256}, r"needs a sentinel for each of up to 13 spans, and the tokenizer has 8"),
        (t5, {"masked_lm_prob": 0.2}, r"masked_lm_prob=0\.2 has no effect with objective='span-corruption'"),
        (bart, {"output_bias": "unigram"}, r"output_bias='unigram' has no effect with objective='text-infilling'"),
        (SHAPE, {"noise_density": 0.2}, r"noise_density=0\.2 has no effect with objective='mlm\+nsp'"),
        (t5, {"compile": True}, r"compile='on' works on the layers of encoders only"),
        (t5, {"parallel": "fsdp"}, r"parallel='fsdp' works on the layers of encoders only"),
        (t5, {"protocol": "original"}, r"protocol 'original' has the objective mlm\+nsp"),
    ):
        with pytest.raises(ConfigError, match=told):
            pretrain(store, tmp_path / "run", settings("t5", **changes), model=model)
        assert not (tmp_path / "run").exists()


def test_tokenizers_without_what_the_objective_needs(stores: dict[str, Stores]) -> None:
    special = DenoisingVocabulary.of(stores["t5"][0].tokenizer())
    assert [len(part) for part in (special.before, special.behind, special.sentinels)] == [1, 1, 8]
    for objective, lacking, told in (
        ("span-corruption", replace(special, sentinels=()), "sentinels"),
        ("text-infilling", replace(special, mask_id=None), "mask"),
    ):
        config = settings("t5", objective=objective)
        with pytest.raises(ConfigError, match=f"{objective} needs a tokenizer with .*{told}"):
            training_data(stores["t5"][0], lacking, config)
        assert isinstance(training_data(stores["t5"][0], special, config), DenoisingData)  # control


def test_words_are_added_to_encoders_only(stores: dict[str, Stores], tmp_path: Path) -> None:
    store = stores["bart"][0]
    network, _ = make_network(shape_of("bart", store), store, with_family("bart", store))
    network.save_pretrained(tmp_path / "start")
    tokens = list(store.tokenizer().vocab)[:-1]
    bertkit.BertTokenizer({token: number for number, token in enumerate(tokens)}).save_pretrained(tmp_path / "start")
    with pytest.raises(ConfigError, match=r"prepared with 1 word more .*, and words can be added to encoders only"):
        make_network(tmp_path / "start", store, with_family("bart", store))
