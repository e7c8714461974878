"""bertkit.hub: the keys, shapes and types of TF-Hub's layers, and transformers' values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bertkit
from adapter_helpers import by_hand, change_settings
from bertkit import hub
from bertkit.errors import CheckpointError, InputError
from bertkit.hub import Encoder, Preprocess, _in_turns
from pipeline_helpers import save_tiny
from tokenizer_helpers import vocab_file

INPUT = {"input_word_ids": [[2, 5, 3]], "input_mask": [[1, 1, 1]], "input_type_ids": [[0, 0, 0]]}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def preprocess(shared: Path) -> Preprocess:
    return Preprocess(vocab_file(shared, "uncased"))


def test_preprocess_gives_three_columns_of_one_width(preprocess: Preprocess) -> None:
    out = preprocess(["This is a spam mail", "Computers are not unique to computers"])
    assert list(out) == ["input_word_ids", "input_mask", "input_type_ids"]
    for values in out.values():
        assert values.shape == (2, 128)
        assert values.dtype == torch.int32
    assert out["input_mask"].tolist() == [[1] * 8 + [0] * 120] * 2
    assert not out["input_type_ids"].any()
    assert (out["input_word_ids"] != 0).long().tolist() == out["input_mask"].tolist()
    assert out["input_word_ids"][:, 0].tolist() == [101, 101]
    assert out["input_word_ids"][:, 7].tolist() == [102, 102]


def test_preprocess_equals_transformers(preprocess: Preprocess, shared: Path) -> None:
    from transformers import BertTokenizer as Peer

    peer = Peer(vocab=preprocess.tokenizer.vocab, do_lower_case=True)
    texts = (shared / "data" / "pretrain_text" / "google_bert_sample_text.txt").read_text(encoding="utf-8").split("\n")
    texts = [text for text in texts if text][:40]
    out = preprocess.bert_pack_inputs([preprocess.tokenize(texts)], seq_length=24)
    expected = peer(texts, padding="max_length", truncation=True, max_length=24, return_tensors="pt")
    for ours, theirs in zip(out.values(), ("input_ids", "attention_mask", "token_type_ids"), strict=True):
        assert torch.equal(ours.long(), expected[theirs])
    pairs = preprocess.bert_pack_inputs([preprocess.tokenize(texts[:-1]), preprocess.tokenize(texts[1:])], 512)
    expected = peer(texts[:-1], texts[1:], padding="max_length", max_length=512, return_tensors="pt")
    for ours, theirs in zip(pairs.values(), ("input_ids", "attention_mask", "token_type_ids"), strict=True):
        assert torch.equal(ours.long(), expected[theirs])


@given(st.integers(0, 30), st.integers(0, 30), st.integers(2, 40))
def test_segments_take_turns(num_a: int, num_b: int, room: int) -> None:
    """Against the words of the definition: one token each in turn, the first segment beginning."""
    taken = [0, 0]
    while sum(taken) < min(room, num_a + num_b):
        for number, length in enumerate((num_a, num_b)):
            if taken[number] < length and sum(taken) < room:
                taken[number] += 1
    assert _in_turns([num_a, num_b], room) == taken
    assert _in_turns([num_a], room) == [min(num_a, room)]


def test_encoder_equals_transformers(tiny: Path) -> None:
    from transformers import BertModel as Peer

    preprocess = Preprocess(tiny, seq_length=16)
    inputs = preprocess(["the film is good .", "a very dull scene", "not"])
    out = Encoder(tiny)(inputs)
    assert set(out) == {"encoder_outputs", "pooled_output", "default", "sequence_output"}
    ids, mask, types = (values.long() for values in inputs.values())
    with torch.no_grad():
        expected = Peer.from_pretrained(tiny)(ids, mask, types, output_hidden_states=True)
    real = mask == 1
    assert len(out["encoder_outputs"]) == 2
    for ours, theirs in zip(out["encoder_outputs"], expected.hidden_states[1:], strict=True):
        torch.testing.assert_close(ours[real], theirs[real], rtol=1e-5, atol=1e-5)
        assert not ours[~real].any()
    torch.testing.assert_close(out["pooled_output"], expected.pooler_output, rtol=1e-5, atol=1e-5)
    assert torch.equal(out["default"], out["pooled_output"])
    assert bool((out["encoder_outputs"][-1] == out["sequence_output"]).all())


def test_only_a_trainable_encoder_has_dropout_and_gradients(tiny: Path) -> None:
    inputs = Preprocess(tiny, seq_length=12)(["the film is great", "dull"])
    frozen, trainable = Encoder(tiny), Encoder(tiny, trainable=True)
    frozen.train()
    assert torch.equal(frozen(inputs)["default"], frozen(inputs)["default"])
    assert not frozen(inputs)["default"].requires_grad
    assert not torch.equal(trainable(inputs)["default"], trainable(inputs)["default"])
    trainable(inputs)["default"].sum().backward()
    assert trainable.model.embeddings.word_embeddings.weight.grad is not None
    trainable.eval()
    assert torch.equal(trainable(inputs)["default"], frozen(inputs)["default"])


def test_a_new_pooler_is_made_as_the_error_says(tiny: Path, tmp_path: Path) -> None:
    bare = bertkit.BertModel(bertkit.BertConfig.from_pretrained(tiny), add_pooling_layer=False)
    bare.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"Encoder\(BertModel\.from_pretrained\(\.\.\., new_head=True\)"):
        Encoder(tmp_path)
    models = [bertkit.BertModel.from_pretrained(tmp_path, new_head=True, seed=seed) for seed in (0, 0, 1)]
    assert models[0].load_report.new == ("pooler.dense.weight", "pooler.dense.bias")
    weights = [model.pooler.dense.weight for model in models]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert Encoder(models[0], trainable=True)(INPUT)["pooled_output"].requires_grad
    whole = bertkit.BertModel.from_pretrained(tiny, new_head=True)
    assert whole.load_report.new == (), "the pooler of the file stays"


def test_wrong_calls_are_refused(tiny: Path, preprocess: Preprocess) -> None:
    for texts, told in (
        ("one text", "got one text"),
        ([], "got an empty one"),
        ({"text": ["a"]}, r"expected a list of texts, got a mapping: \{'text'"),
        ([3], "text 0 is not a text"),
    ):
        with pytest.raises(InputError, match=told):
            preprocess(texts)
    with pytest.raises(InputError, match="seq_length must be at least 3"):
        Preprocess(tiny, seq_length=2)
    for segments, told in (
        ([], "got 0"),
        ([[[5]], [[5], [6]]], r"different numbers of texts: \[1, 2\]"),
        ([[[5]], [[5]], [[5]]], "got 3"),
    ):
        with pytest.raises(InputError, match=told):
            preprocess.bert_pack_inputs(segments)
    with pytest.raises(InputError, match="seq_length=4 leaves no room"):
        preprocess.bert_pack_inputs([[[5]], [[5]]], seq_length=4)
    with pytest.raises(InputError, match=r"expected the keys input_word_ids, .*got 'input_ids'"):
        Encoder(tiny)({"input_ids": [[1]]})
    bare = bertkit.BertModel(bertkit.BertConfig.from_pretrained(tiny), add_pooling_layer=False)
    with pytest.raises(CheckpointError, match=r"no pooler.*train a new pooler"):
        Encoder(bare)
    config = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    with pytest.raises(CheckpointError, match=r"no pooler.*bertkit\.BertModel$"):  # the family has none to train
        Encoder(bertkit.BertModel(bertkit.BertConfig(model_type="distilbert", **config)))


def test_only_public_names_are_listed() -> None:
    assert set(dir(hub)) == {"INPUTS", "Encoder", "KerasLayer", "Preprocess"}


def test_keras_layer_is_either_layer(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "m", bertkit.BertModel)
    encoder, preprocess = hub.KerasLayer(folder), hub.KerasLayer(folder / "vocab.txt")
    assert isinstance(preprocess, hub.Preprocess)
    assert isinstance(encoder, hub.Encoder)
    assert encoder(preprocess(["a b"]))["pooled_output"].shape[0] == 1
    assert hub.KerasLayer(folder, trainable=True).trainable


def test_keras_layer_takes_a_folder_for_what_it_is(tmp_path: Path) -> None:
    """Models without a ``config.json`` lie beside a vocabulary too: the original's archives, and adapters."""
    folder = save_tiny(tmp_path / "m", bertkit.BertModel)
    words = tmp_path / "words"
    words.mkdir()
    (words / "vocab.txt").write_bytes((folder / "vocab.txt").read_bytes())
    assert isinstance(hub.KerasLayer(words), hub.Preprocess)
    (words / "bert_config.json").write_text("{}")
    (words / "bert_model.ckpt.index").write_text("")
    with pytest.raises(CheckpointError, match=r"has a TensorFlow checkpoint.*\n.*bertkit convert"):
        hub.KerasLayer(words)
    adapter = tmp_path / "adapter"
    by_hand(adapter, folder, modules={"bert.encoder.layer.0.attention.self.query": (32, 32)}, head={})
    change_settings(adapter, task_type=None)
    (adapter / "vocab.txt").write_bytes((folder / "vocab.txt").read_bytes())
    encoder, inputs = hub.KerasLayer(adapter), hub.Preprocess(adapter, seq_length=8)(["the film"])
    assert isinstance(encoder, hub.Encoder)
    assert not torch.equal(encoder(inputs)["default"], hub.Encoder(folder)(inputs)["default"])
