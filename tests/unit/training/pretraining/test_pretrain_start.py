"""Continued pre-training: every part that a checkpoint has is kept, every other is new and said to be."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bertkit.data.store.prepare import prepare
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import CheckpointError, ConfigError, DataError
from bertkit.model.models import (
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
)
from bertkit.tokenization import BertTokenizer
from bertkit.training.pretraining.initial_model import make_network
from bertkit.training.pretraining.pretrain import pretrain
from pretrain_runs import SETTINGS, SHAPE

MLM, NSP = "masked-lm head", "next-sentence head"
MODULES = {"pooler": "bert.pooler", MLM: "cls.predictions", NSP: "cls.seq_relationship"}


@pytest.fixture
def saved(stores, tmp_path):
    """Saves a model with the tokenizer of the stores beside it."""

    def save(model):
        model.save_pretrained(tmp_path / "start")
        stores[0].tokenizer().save_pretrained(tmp_path / "start")
        return tmp_path / "start"

    return save


def make(cls, **options):
    torch.manual_seed(7)
    return cls(SHAPE, **options)


@pytest.mark.parametrize(
    ("cls", "options", "new"),
    [
        (BertForPreTraining, {}, ()),
        (BertForMaskedLM, {}, ("pooler", NSP)),
        (BertForNextSentencePrediction, {}, (MLM,)),
        (BertForSequenceClassification, {}, (MLM, NSP)),
        (BertModel, {}, (MLM, NSP)),
        (BertModel, {"add_pooling_layer": False}, ("pooler", MLM, NSP)),
    ],
)
def test_what_is_there_is_kept(stores, saved, capsys, cls, options, new) -> None:
    model = make(cls, **options)
    with torch.no_grad():  # a bias of 0 would look the same whether kept or new
        for parameter in model.parameters():
            parameter.add_(0.01)
    path = saved(model)
    network, start = make_network(path, stores[0], SETTINGS)
    assert set(start.new_parts) == set(new)
    assert start.source == str(path)
    encoder = model if cls is BertModel else model.bert
    for name, value in network.bert.encoder.state_dict().items():
        assert torch.equal(value, encoder.encoder.state_dict()[name])
    for part, module in MODULES.items():
        mine = network.get_submodule(module).state_dict()
        if part in new:
            again = make_network(path, stores[0], SETTINGS)[0].get_submodule(module).state_dict()
            assert all(torch.equal(mine[name], again[name]) for name in mine)  # from the seed
            other = make_network(path, stores[0], SETTINGS.replace(seed=1))[0].get_submodule(module).state_dict()
            assert any(not torch.equal(mine[name], other[name]) for name in mine)
        else:
            theirs = model.get_submodule(module if cls is not BertModel else module.removeprefix("bert."))
            assert all(torch.equal(mine[name], value) for name, value in theirs.state_dict().items())
    said = capsys.readouterr().err
    assert all(part in said for part in new)
    assert ("newly initialized" in said) == bool(new)


def test_a_run_from_an_encoder_says_in_its_summary_what_was_new(stores, saved, tmp_path) -> None:
    path = saved(make(BertModel))
    result = pretrain(stores[0], tmp_path / "run", SETTINGS.replace(max_steps=2), model=str(path))
    start = json.loads((tmp_path / "run" / "metrics.json").read_text())["start"]
    assert set(start["new_parts"]) == set(result.new_parts) == {MLM, NSP}
    assert len(start["sha256"]) == 64
    BertForPreTraining.from_pretrained(result.model)


def test_a_new_head_can_begin_with_the_frequencies_of_the_tokens(stores) -> None:
    num_tokens = len(stores[0].tokenizer())
    counts = np.bincount(stores[0].tokens(0, len(stores[0].sentence_lengths)), minlength=num_tokens)
    larger = SHAPE.replace(vocab_size=num_tokens + 3)  # rows that no token has stay as they were
    network, _ = make_network(larger, stores[0], SETTINGS.replace(output_bias="unigram"))
    bias = network.cls.predictions.bias.detach()
    shares = torch.softmax(bias[:num_tokens], dim=0).numpy()
    np.testing.assert_allclose(shares, np.maximum(counts, 1) / np.maximum(counts, 1).sum(), rtol=1e-5)
    assert bias[num_tokens:].tolist() == [0.0] * 3
    zero, _ = make_network(larger, stores[0], SETTINGS)
    assert not zero.cls.predictions.bias.any()
    same = (
        torch.equal(a, b)
        for (name, a), b in zip(network.named_parameters(), zero.parameters(), strict=True)
        if name != "cls.predictions.bias"
    )
    assert all(same)


def test_so_can_the_new_head_of_a_checkpoint_and_no_other(stores, saved) -> None:
    unigram = SETTINGS.replace(output_bias="unigram")
    expected = make_network(SHAPE, stores[0], unigram)[0].cls.predictions.bias
    path = saved(make(BertModel))
    assert torch.equal(make_network(path, stores[0], unigram)[0].cls.predictions.bias, expected)
    assert not make_network(path, stores[0], SETTINGS)[0].cls.predictions.bias.any()
    path = saved(make(BertForMaskedLM))
    assert not make_network(path, stores[0], unigram)[0].cls.predictions.bias.any(), "it is the checkpoint's"


def test_masked_lm_alone_leaves_the_pooler_untrained_and_says_so(stores) -> None:
    assert make_network(SHAPE, stores[0], SETTINGS)[1].untrained == ()
    assert make_network(SHAPE, stores[0], SETTINGS.replace(objective="mlm"))[1].untrained == ("pooler", NSP)


def test_half_a_head_is_damage(stores, saved) -> None:
    path = saved(make(BertForPreTraining))
    tensors = load_file(path / "model.safetensors")
    for name in ("cls.predictions.transform.dense.bias", "bert.encoder.layer.0.output.dense.bias"):
        kept = {key: value for key, value in tensors.items() if key != name}
        save_file(kept, path / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(CheckpointError, match=name):
            make_network(path, stores[0], SETTINGS)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    assert make_network(path, stores[0], SETTINGS)[1].new_parts == ()  # control


def test_another_tokenizer_is_refused(stores, saved, tmp_path, capsys) -> None:
    path = saved(make(BertForPreTraining))
    words = list(stores[0].tokenizer().vocab)
    words[-1], words[-2] = words[-2], words[-1]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    BertTokenizer(vocab_file=tmp_path / "vocab.txt").save_pretrained(path)
    with pytest.raises(DataError, match=r"bertkit prepare CORPUS --tokenizer .*start"):
        make_network(path, stores[0], SETTINGS)
    (path / "tokenizer.json").write_text("{")
    make_network(path, stores[0], SETTINGS)
    assert "tokenizer.json:1 is not JSON" in capsys.readouterr().err
    for file in [*path.glob("*token*"), *path.glob("vocab*")]:
        file.unlink()
    make_network(path, stores[0], SETTINGS)
    assert "sizes of the tokenizers" in (said := capsys.readouterr().err)
    assert "has no vocab.txt" in said


def test_dropout_changes_the_rates_and_no_weight(stores, saved) -> None:
    model = make(BertForPreTraining)
    for start in (saved(model), model):
        network, _ = make_network(start, stores[0], SETTINGS.replace(dropout=0.3))
        assert network.config.hidden_dropout_prob == network.config.attention_probs_dropout_prob == 0.3
        assert network.bert.encoder.layer[0].dropout.p == 0.3
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in network.state_dict().items())


def test_too_few_positions(stores, saved) -> None:
    with pytest.raises(ConfigError, match="max_position_embeddings=64"):
        make_network(saved(make(BertForMaskedLM)), stores[0], SETTINGS.replace(max_seq_length=65))


def test_a_published_sentence_encoder_goes_on(minilm, tmp_path) -> None:
    """MiniLM has a pooler and no head for words."""
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"The cat number {n} sat on the mat.\nIt was a good mat." for n in range(20)) + "\n")
    prepare(text, BertTokenizer.from_pretrained(minilm), tmp_path / "store", sentences="line", workers=1)
    network, start = make_network(minilm, TokenStore(tmp_path / "store"), SETTINGS)
    assert set(start.new_parts) == {MLM, NSP}
    encoder = BertModel.from_pretrained(minilm)
    assert torch.equal(network.bert.encoder.layer[5].ffn_up.weight, encoder.encoder.layer[5].ffn_up.weight)
