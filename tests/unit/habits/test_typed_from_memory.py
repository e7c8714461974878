"""What people type from memory of other libraries, and did not work at the first try."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

import bertkit
from bertkit import BertConfig, BertForSequenceClassification
from bertkit.errors import ConfigError
from bertkit.optim import parameter_groups

SHAPE = {
    "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
    "max_position_embeddings": 20,
}  # fmt: skip


def test_a_new_vocabulary_where_special_tokens_have_high_ids(tmp_path: Path) -> None:
    """As in BERT's own vocabulary, where [UNK] is 100."""
    vocabulary = tmp_path / "vocab.txt"
    words = ["[PAD]", *(f"[unused{n}]" for n in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    vocabulary.write_text("\n".join(words))
    old, texts = bertkit.BertTokenizer(vocabulary), ["ab cd ab", "abab efgh"] * 5
    old.save_pretrained(tmp_path)
    expected = transformers.AutoTokenizer.from_pretrained(tmp_path).train_new_from_iterator(texts, 40)
    new = old.train_new_from_iterator(texts, 40)
    assert set(new.get_vocab()) == set(expected.get_vocab())
    assert new.tokenize("ab cd xyz") == expected.tokenize("ab cd xyz")
    assert {str(each): new.convert_tokens_to_ids(each) for each in new.all_special_tokens} == {
        each: expected.convert_tokens_to_ids(each) for each in expected.all_special_tokens}  # fmt: skip
    assert old.unk_token_id == 100 != new.unk_token_id


def test_both_ways_to_leave_norms_without_decay_that_the_page_names() -> None:
    model = BertForSequenceClassification(BertConfig(**SHAPE))
    groups = parameter_groups(model, weight_decay=0.01)
    kept = {name for group in groups if not group["weight_decay"] for name in group["names"]}
    names = [name for name, _ in model.named_parameters()]
    assert {name for name in names if any(part in name for part in ("bias", "norm", "Norm"))} == kept
    assert {name for name in names if any(part in name for part in ("bias", "LayerNorm.weight"))} != kept  # a control


def test_labels_and_the_loss_of_a_config_can_be_set(tmp_path: Path) -> None:
    model = BertForSequenceClassification(BertConfig(**SHAPE, num_labels=3))
    model.config.id2label = {0: "a", 1: "b", 2: "c"}
    model.config.label2id = {"a": 0, "b": 1, "c": 2}
    assert model.bert.config.id2label == {0: "a", 1: "b", 2: "c"}
    model.config.label2id = {"x": 0, "y": 1, "z": 2}
    model.config.problem_type = "multi_label_classification"
    model.config.pad_token_id = model.config.num_labels - 3  # which it is
    model.config.use_cache = False
    model.save_pretrained(tmp_path)
    again = BertForSequenceClassification.from_pretrained(tmp_path).config
    assert again.label2id == {"x": 0, "y": 1, "z": 2}
    assert again.problem_type == "multi_label_classification"
    assert model(torch.tensor([[2, 3]]), labels=torch.tensor([[1.0, 0, 1]])).loss < 2


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("id2label", {0: "a", 1: "b"}, r"and this has 3; write config = config\.replace\(num_labels=2\)"),
        ("id2label", {0: "a", 2: "b", 3: "c"}, "must number its labels"),
        ("id2label", ["a", "b", "c"], "must be an object"),
        ("label2id", {"a": 0, "b": 0, "c": 1}, "two labels have the same number"),
        ("num_labels", 5, r"write config = config\.replace\(num_labels=5\) .* or from_pretrained\(NAME, num_labels=5"),
        ("problem_type", "multi_label", "problem_type = 'multi_label'"),
        ("hidden_size", 32, r"config\.replace\(hidden_size=32\)"),
        ("my_thing", 1, "BertConfig has no field 'my_thing'"),
        ("num_layers", 1, r"no field 'num_layers'; write config\.num_hidden_layers"),
    ],
)
def test_what_cannot_be_set_on_a_config_says_the_line(name: str, value: object, told: str) -> None:
    config = BertConfig(**SHAPE, num_labels=3)
    before = config.to_dict()
    with pytest.raises(ConfigError, match=told):
        setattr(config, name, value)
    assert config.to_dict() == before


@pytest.mark.parametrize("family", ["bert", "distilbert", "albert", "electra", "modernbert", "deberta-v2"])
def test_a_config_is_made_of_its_file(family: str) -> None:
    config = BertConfig(model_type=family, num_labels=3, architectures=["BertForSequenceClassification"])
    assert BertConfig(**config.to_dict()) == config
    assert BertConfig(**config.to_dict(), transformers_version="5", use_cache=True) == config
    with pytest.raises(ConfigError, match=r"'hiden_size' \(did you mean 'hidden_size'"):
        BertConfig(**config.to_dict(), hiden_size=3)
