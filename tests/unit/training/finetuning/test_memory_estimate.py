"""The estimate of the memory of a fine-tuning, beside the bytes that autograd keeps, and when it is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from bertkit import BertConfig, BertForSequenceClassification
from bertkit.batch import pack
from bertkit.training.finetuning import memory_estimate as module
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.memory_estimate import longest_batch, memory_line, training_bytes
from bertkit.training.pretraining.initial_model import with_dropout

OWN: dict[str, dict[str, Any]] = {
    "bert": {},
    "modernbert": {"local_attention": 64},
    "deberta-v2": {"position_buckets": 64, "max_relative_positions": 128},
    "mpnet": {},
}


def shape_of(family: str) -> BertConfig:
    return BertConfig(
        model_type=family, vocab_size=100, hidden_size=64, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=256, max_position_embeddings=600, pad_token_id=int(family == "mpnet"), **OWN[family],
    )  # fmt: skip


def kept_bytes(shape: BertConfig, lengths: Sequence[int]) -> int:
    """Bytes of all tensors that autograd keeps for the backward pass; parameters are not among them."""
    model = BertForSequenceClassification(shape).train()
    kept: dict[int, torch.Tensor] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage().data_ptr()] = x
        return x

    batch = pack([[7] * length for length in lengths]).with_target("labels", torch.zeros(len(lengths)).long())
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        loss = model.forward_packed(batch).loss
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    assert loss is not None
    return sum(x.untyped_storage().nbytes() for place, x in kept.items() if place not in own)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("family", OWN)
def test_it_is_near_what_autograd_keeps(family: str, dropout: float) -> None:
    shape = with_dropout(shape_of(family), dropout)
    weights = training_bytes(shape, [])
    for lengths in ([64] * 8, [500] * 2, [16] * 30):
        found = training_bytes(shape, lengths) - weights
        assert 0.7 < found / kept_bytes(shape, lengths) < 1.5, lengths


def test_weights_count_with_gradients_and_moments() -> None:
    shape = shape_of("bert")
    numbers = sum(parameter.numel() for parameter in BertForSequenceClassification(shape).parameters())
    assert training_bytes(shape, []) == pytest.approx(16 * numbers, rel=0.05)


def test_the_longest_batch_is_as_training_would_split_it() -> None:
    assert longest_batch([5, 9, 100, 80, 30], 190, 512) == [100, 80]
    assert longest_batch([700], 190, 512) == [512, 188], "windows of one text stay together"


def test_it_is_told_only_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, config = shape_of("modernbert"), FinetuneConfig(max_length=512)
    needed = training_bytes(shape, [500] * 8)
    monkeypatch.setattr(module, "_memory", lambda device: int(needed * 1.5))
    line = memory_line(shape, [500] * 20, config, None)
    assert line.startswith("MEMORY: the longest batch (500 tokens in a text)")
    assert "--max-length" in line
    assert memory_line(shape, [20] * 20, config, None) == ""
    assert memory_line(shape, [500] * 20, FinetuneConfig(max_length=512, freeze_encoder=True), None) == ""
    monkeypatch.setattr(module, "_memory", lambda device: None)
    assert memory_line(shape, [500] * 20, config, None) == ""
