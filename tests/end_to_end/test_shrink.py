"""A smaller model out of a larger one, from files to a folder."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from bertkit import AutoTokenizer, BertForMaskedLM, BertModel, SentenceEncoder
from bertkit.batch import pack
from bertkit.cli import main
from bertkit.config.bert_config import BertConfig
from bertkit.errors import ConfigError, InputError
from bertkit.model.models import BertForMaskedLM as MaskedLM
from bertkit.model.resize import keep_rows
from bertkit.training.distillation.shrink import shrink
from embedding_data import WORDS, untrained
from finetune_data import tiny_start


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("a good film\nthe day was sad\na very good book\n")
    return file


def test_kept_words_are_answered_bit_for_bit(tmp_path, texts):
    start = tiny_start(tmp_path / "start")
    torch.manual_seed(3)
    model = MaskedLM(BertConfig.from_json_file(start / "config.json")).eval()
    model.save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(start).save_pretrained(tmp_path / "model")
    result = shrink(tmp_path / "model", tmp_path / "small", vocab_from=[texts])
    old, new = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("model", "small"))
    assert result.tokens == (len(old), len(new))
    assert len(new) < len(old)
    assert result.checked == 3
    small = BertForMaskedLM.from_pretrained(tmp_path / "small")
    assert small.config.vocab_size == len(new)
    assert small.cls.predictions.bias.shape == (len(new),)
    row = "the good film was very sad"
    before, after = (pack([each(row)["input_ids"]]) for each in (old, new))
    with torch.inference_mode():
        assert torch.equal(
            model.bert.forward_packed(before).last_hidden_state, small.bert.forward_packed(after).last_hidden_state
        )
        kept = [old.vocab[token] for token in sorted(new.vocab, key=new.vocab.__getitem__)]
        torch.testing.assert_close(model.forward_packed(before).logits[:, kept], small.forward_packed(after).logits)
    assert new.tokenize("an awful book")[0] == "[UNK]"  # as short a vocabulary has no letters


def test_a_sentence_model_stays_one(tmp_path):
    folder = untrained(tmp_path / "model")
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(" ".join(words) for words in WORDS[:4]))
    shrink(folder, tmp_path / "small", vocab_from=[file])
    text = " ".join(WORDS[2][:4])
    old, new = SentenceEncoder(folder), SentenceEncoder(tmp_path / "small")
    np.testing.assert_array_equal(old.encode(text), new.encode(text))
    assert new.config == old.config


def test_layers_and_words_that_are_rare(tmp_path, texts, capsys):
    start = tiny_start(tmp_path / "start")
    torch.manual_seed(0)
    BertModel(BertConfig.from_json_file(start / "config.json").replace(num_hidden_layers=3)).save_pretrained(start)
    command = ["shrink", str(start), "--out", str(tmp_path / "out"), "--keep-layers", "0,2", "--json", "--quiet"]
    assert main([*command, "--vocab-from", str(texts), "--min-count", "2"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["num_layers"] == [3, 2]
    assert report["tokens"][1] < report["tokens"][0] - 5
    assert BertModel.from_pretrained(tmp_path / "out").config.num_hidden_layers == 2
    for given, message in (
        (["--keep-layers", "0,7"], "different numbers from 0 to 2"),
        (["--keep-layers", "2x128"], "give a number, such as 3"),
        ([], "nothing to take away"),
        (["--keep-layers", "1", "--min-count", "2"], "--min-count 2 counts tokens in the texts of --vocab-from"),
    ):
        assert main(["shrink", str(start), "--out", str(tmp_path / "no"), *given]) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "no").exists()
    with pytest.raises(ConfigError, match="exists"):
        shrink(start, tmp_path / "out", layers="1")


def test_rows_of_padding_must_stay():
    torch.manual_seed(0)
    model = BertModel(BertConfig(vocab_size=12, hidden_size=8, num_attention_heads=2, num_hidden_layers=1))
    with pytest.raises(InputError, match="row 0, must be kept"):
        keep_rows(model, [1, 2])
    with pytest.raises(InputError, match="different numbers"):
        keep_rows(model, [0, 0])
    table = model.embeddings.word_embeddings.weight.clone()
    keep_rows(model, [3, 0, 5])
    assert torch.equal(model.embeddings.word_embeddings.weight, table[[3, 0, 5]])
    assert model.config.pad_token_id == model.embeddings.word_embeddings.padding_idx == 1
