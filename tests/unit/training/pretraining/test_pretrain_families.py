"""Masked-LM pre-training of every family: from new weights, from a checkpoint; objectives that a family lacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from bertkit import BertConfig, BertForMaskedLM, BertForPreTraining, BertModel
from bertkit.batch import pack
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError
from bertkit.model.kernels import products
from bertkit.training.pretraining.initial_model import make_network, with_dropout
from bertkit.training.pretraining.operations import training_flops
from bertkit.training.pretraining.pretrain import pretrain
from bertkit.training.pretraining.pretrain_data import held_out_scores
from pretrain_runs import SETTINGS, make_stores

Stores = tuple[TokenStore, TokenStore]
OWN: dict[str, dict[str, Any]] = {
    "roberta": {},
    "modernbert": {"local_attention": 8},
    "deberta-v2": {"position_buckets": 8, "max_relative_positions": 16, "norm_rel_ebd": "layer_norm"},
    "mpnet": {},
    "distilbert": {},
    "electra": {"embedding_size": 16},
    "albert": {"embedding_size": 16},
}
WORDS = SETTINGS.replace(objective="mlm", max_steps=3)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Padding has the id 1: transformers counts the positions of MPNet from there whatever its config says."""
    return make_stores(tmp_path_factory.mktemp("stores"), "[UNK]", "[PAD]")


def shape_of(family: str, **changes: Any) -> BertConfig:
    values = {
        "vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
        "max_position_embeddings": 64, "pad_token_id": 1, **OWN[family], **changes,
    }  # fmt: skip
    return BertConfig(model_type=family, **values)


@pytest.mark.slow
@pytest.mark.parametrize("family", OWN)
def test_new_weights_learn_words_and_others_read_the_model(stores: Stores, tmp_path: Path, family: str) -> None:
    num_steps = 100 if family == "modernbert" else 50  # its residual stream starts smaller
    settings = WORDS.replace(dropout=0.1, max_steps=num_steps, learning_rate=1e-2)
    result = pretrain(stores[0], tmp_path / "run", settings, model=shape_of(family), dev=stores[1])
    told = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert told["start"]["untrained"] == []
    assert set(result.scores) == {"masked_lm_loss", "masked_lm_accuracy"}
    assert result.scores["masked_lm_loss"] < result.unigram_entropy
    theirs, info = transformers.AutoModelForMaskedLM.from_pretrained(result.model, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.tensor([[2, 7, 4, 9, 3]])
    with torch.no_grad():
        ours = BertForMaskedLM.from_pretrained(result.model)(input_ids=ids).logits
        assert torch.allclose(theirs.eval()(input_ids=ids).logits, ours, atol=1e-5)


@pytest.mark.parametrize("family", OWN)
def test_a_checkpoint_keeps_what_it_has(stores: Stores, tmp_path: Path, family: str) -> None:
    for cls, new in ((BertForMaskedLM, ()), (BertModel, ("masked-lm head",))):
        model = cls(shape_of(family))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01)
        path = tmp_path / cls.__name__
        model.save_pretrained(path)
        stores[0].tokenizer().save_pretrained(path)
        network, start = make_network(path, stores[0], WORDS)
        assert type(network) is BertForMaskedLM
        assert start.new_parts == new
        kept = model.encoder if cls is BertModel else model.bert.encoder
        for name, value in kept.state_dict().items():
            assert torch.equal(value, network.bert.encoder.state_dict()[name])
        if not new:
            assert torch.equal(
                network.cls.predictions.transform.dense.weight, model.cls.predictions.transform.dense.weight
            )


@pytest.mark.parametrize("family", OWN)
def test_pairs_of_sentences_are_refused_with_what_to_use(stores: Stores, family: str) -> None:
    what = "only the order of two segments" if family == "albert" else "no head that judges pairs"
    with pytest.raises(ConfigError, match=f"the {family} family, which .*{what}.*--objective .*mlm"):
        make_network(shape_of(family), stores[0], SETTINGS)


def test_albert_learns_the_order_of_sentences(stores: Stores, tmp_path: Path) -> None:
    settings = SETTINGS.replace(objective="mlm+sop", max_steps=3)
    result = pretrain(stores[0], tmp_path / "run", settings, model=shape_of("albert"), dev=stores[1])
    assert "next_sentence_loss" in result.scores
    assert BertForPreTraining.from_pretrained(result.model).load_report.new == ()


def test_positions_that_begin_after_padding_need_its_id(stores: Stores) -> None:
    with pytest.raises(ConfigError, match=r"pad_token_id=0, the tokenizer of .* has 1"):
        make_network(shape_of("roberta", pad_token_id=0), stores[0], WORDS)
    with pytest.raises(ConfigError, match=r"max_seq_length=64, .*max_position_embeddings=64; use at most 62"):
        make_network(shape_of("mpnet"), stores[0], WORDS.replace(max_seq_length=64))


SMALL_BERT = BertConfig(vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)


def test_a_model_in_memory_must_be_of_the_class_that_is_trained(stores: Stores) -> None:
    with pytest.raises(ConfigError, match="trains a BertForPreTraining of the bert family, got a BertForMaskedLM"):
        make_network(BertForMaskedLM(SMALL_BERT), stores[0], WORDS)


def test_held_out_scores_are_those_of_the_model(stores: Stores) -> None:
    model = BertForMaskedLM(shape_of("modernbert")).eval()
    batch = pack([[2, 7, 8, 3], [2, 9, 4, 11, 3]])
    labels = torch.tensor([-100, 5, -100, -100, -100, 6, 7, -100, -100])
    packed = batch.with_target("labels", labels)
    rows = (labels != -100).nonzero().flatten()

    class OneBatch:
        steps_per_epoch, batch_size = 1, 2

        def micro_batches(self, step: int) -> list[Any]:
            return [_with_rows(packed, rows)]

    with torch.no_grad():
        scores = held_out_scores(model, OneBatch(), 2)(lambda: None)  # type: ignore[arg-type]
        expected = model(
            torch.tensor([[2, 7, 8, 3, 0], [2, 9, 4, 11, 3]]),
            attention_mask=torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
            labels=torch.tensor([[-100, 5, -100, -100, -100], [-100, 6, 7, -100, -100]]),
        )
    assert scores["masked_lm_loss"] == pytest.approx(float(expected.loss), rel=1e-5)


def _with_rows(batch: Any, rows: torch.Tensor) -> Any:
    from dataclasses import replace

    return replace(batch, logit_rows=rows)


@pytest.mark.parametrize("family", OWN)
def test_flops_are_those_that_torch_counts(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One length, short enough for a window to hold all of it, so that nothing is computed and thrown away."""
    window = {"local_attention": 64} if family == "modernbert" else {}
    shape = with_dropout(shape_of(family, hidden_size=64, max_position_embeddings=40, **window), 0.0)
    model = BertForMaskedLM(shape).train()
    batch = pack([list(range(2, 22))] * 6)
    labels = torch.full((120,), -100)
    labels[torch.arange(1, 120, 5)] = 7
    batch = _with_rows(batch.with_target("labels", labels), (labels != -100).nonzero().flatten())
    monkeypatch.setattr(products, "_plain_product", lambda: None)  # torch counts its own products only
    with FlopCounterMode(display=False) as counter:
        model.forward_packed(batch).loss.backward()
    found = training_flops(batch, shape)
    assert found == pytest.approx(counter.get_total_flops(), rel=0.05)
