"""What people type from memory of other libraries, and did not work at the first try."""

from __future__ import annotations

from pathlib import Path

import transformers

import bertkit
from bertkit import BertConfig, BertForSequenceClassification
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
