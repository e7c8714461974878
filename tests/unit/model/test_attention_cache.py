"""What attention remembers of a batch's lengths serves training as well as inference, whoever came first."""

from __future__ import annotations

import math

import pytest
import torch

from bertkit.batch import pack
from bertkit.config.bert_config import BertConfig
from bertkit.model.kernels.bucketed_attention import buckets, buckets_on
from bertkit.model.models import BertForPreTraining


@pytest.mark.parametrize("lengths", [(9, 3, 30, 5), (7, 6, 8)])
def test_training_after_an_evaluation_of_the_same_lengths(lengths) -> None:
    buckets.cache_clear()
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64,
    )  # fmt: skip
    model = BertForPreTraining(config)
    batch = pack([list(range(5, 5 + length)) for length in lengths])
    batch = batch.with_target("labels", batch.input_ids).with_target(
        "next_sentence_label", torch.zeros(len(lengths), dtype=torch.int64)
    )
    with torch.inference_mode():
        model.eval().forward_packed(batch)
    model.train().forward_packed(batch).loss.backward()
    assert model.bert.encoder.layer[0].attention.qkv.weight.grad.abs().sum() > 0


def test_a_plan_on_another_device_is_made_once() -> None:
    """The device ``meta`` stands for a GPU: what is asked for twice is the same object, and nothing stays behind."""
    lengths, device = (9, 3, 30, 5), torch.device("meta")
    plan = buckets_on(lengths, device)
    assert buckets_on(lengths, device) is plan
    tensors = [plan.rows, plan.back, *(bucket.mask for bucket in plan.each if bucket.mask is not None)]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert buckets_on(lengths, torch.device("cpu")) is buckets(lengths)
    assert plan.gather(torch.empty(47, 2, device=device)).shape == (
        sum(math.prod(bucket.shape) for bucket in plan.each),
        2,
    )
