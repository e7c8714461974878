"""Vectors in parts: the gradients of the whole, the same dropout twice, and the memory of a part."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bertkit.batch import Batch, pack, split_by_budget
from bertkit.config.bert_config import BertConfig
from bertkit.model.cached_vectors import vectors_in_parts
from bertkit.model.models import BertModel
from bertkit.model.pooling import pool_tokens
from bertkit.model.vector_losses import in_batch_loss

LENGTHS = (5, 3, 9, 4, 7, 3, 6, 8)


def small_model(dropout: float) -> BertModel:
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=16,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return BertModel(shape, add_pooling_layer=False).double().train()


def encoding(model: BertModel) -> Callable[[Batch], Tensor]:
    def encode(batch: Batch) -> Tensor:
        hidden = model.forward_packed(batch).last_hidden_state
        assert hidden is not None
        return pool_tokens(hidden, batch.layout, "mean")

    return encode


def texts() -> Batch:
    torch.manual_seed(1)
    return pack([torch.randint(5, 50, (length,)).tolist() for length in LENGTHS])


def gradients(model: BertModel, vectors: Tensor) -> tuple[float, list[Tensor]]:
    """Loss and gradients where the first half of the texts search the second."""
    term = in_batch_loss(vectors[:4], vectors[4:], torch.arange(4))
    term.total.backward()
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad(set_to_none=True)
    return float(term.total.detach()), found


def kept_whole(encode: Callable[[Batch], Tensor], batch: Batch, max_tokens: int) -> Tensor:
    """The same parts in the same order, with one graph of all."""
    order = sorted(range(len(LENGTHS)), key=LENGTHS.__getitem__)
    parts = split_by_budget(order, LENGTHS, max_tokens)
    assert len(parts) > 2
    return torch.cat([encode(batch.select(part)) for part in parts])[torch.tensor(order).argsort()]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_are_those_of_one_graph(dropout: float) -> None:
    model, batch = small_model(dropout), texts()
    encode = encoding(model)
    torch.manual_seed(2)
    right_loss, right = gradients(model, kept_whole(encode, batch, 12))
    after = torch.rand(())
    torch.manual_seed(2)
    loss, found = gradients(model, vectors_in_parts(encode, batch, 12))
    assert loss == pytest.approx(right_loss, abs=1e-12)
    assert torch.rand(()) == after, "the second pass must not move the generator on"
    assert len(found) == len(right) > 20
    for ours, theirs in zip(found, right, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-10)
    if not dropout:
        _, whole = gradients(model, encode(batch))
        for ours, theirs in zip(found, whole, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-10)


def test_other_masks_in_the_second_pass_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = small_model(0.3), texts()
    encode = encoding(model)
    torch.manual_seed(2)
    _, right = gradients(model, kept_whole(encode, batch, 12))
    monkeypatch.setattr(torch, "set_rng_state", lambda state: None)
    torch.manual_seed(2)
    _, found = gradients(model, vectors_in_parts(encode, batch, 12))
    assert max(float((ours - theirs).abs().max()) for ours, theirs in zip(found, right, strict=True)) > 1e-4


def test_no_more_than_one_part_is_kept() -> None:
    """Saved tensors at any time are those of one part; a graph of the whole keeps all of them."""
    model, batch = small_model(0.1), texts()
    encode, alive, most = encoding(model), 0, 0

    class Counted:
        def __init__(self, tensor: Tensor) -> None:
            nonlocal alive, most
            self.tensor = tensor
            alive += tensor.numel()
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= self.tensor.numel()

    def peak(compute: Callable[[], Tensor]) -> int:
        nonlocal alive, most
        alive = most = 0
        with torch.autograd.graph.saved_tensors_hooks(Counted, lambda kept: kept.tensor):
            gradients(model, compute())
        return most

    whole = peak(lambda: kept_whole(encode, batch, 12))
    parts = peak(lambda: vectors_in_parts(encode, batch, 12))
    assert parts < whole / 3


def test_texts_that_fit_and_evaluation_are_computed_once() -> None:
    model, batch = small_model(0.0), texts()
    calls: list[int] = []

    def encode(part: Batch) -> Tensor:
        calls.append(part.layout.num_tokens)
        return encoding(model)(part)

    gradients(model, vectors_in_parts(encode, batch, 1000))
    assert calls == [sum(LENGTHS)]
    calls.clear()
    with torch.inference_mode():
        vectors_in_parts(encode, batch, 12)
    assert sum(calls) == sum(LENGTHS)
    assert max(calls) <= 12
