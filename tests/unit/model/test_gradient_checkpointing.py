"""Gradient checkpointing: the same bits, with dropout, and fewer kept activations."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bertkit.model.models import BertForPreTraining, BertForSequenceClassification
from bertkit.training.trainer.precision import autocast
from training_helpers import TINY, ToyData, tiny_model, toy_trainer

DATA = ToyData()
BATCH = DATA.batch(list(range(20)))


def pretraining_batch() -> Any:
    labels = BATCH.input_ids.clone()
    return BATCH.with_target("labels", labels).with_target("next_sentence_label", torch.zeros(20, dtype=torch.int64))


def step(cls: Any, batch: Any, enabled: bool, precision: Any = "fp32") -> tuple[torch.Tensor, dict[str, Any], int]:
    """Loss, gradients, and how many numbers the forward pass kept for the backward pass, parameters left out."""
    torch.manual_seed(0)
    model = cls(TINY)
    model.set_gradient_checkpointing(enabled)
    known = {p.data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        if x.data_ptr() not in known:
            kept[x.data_ptr()] = x.untyped_storage().nbytes()
        return x

    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x), autocast(precision, torch.device("cpu")):
        terms = model.forward_packed(batch).loss_terms
    loss = sum(term.total for term in terms.values())
    loss.backward()
    return loss, {name: p.grad for name, p in model.named_parameters()}, sum(kept.values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("cls", [BertForPreTraining, BertForSequenceClassification])
def test_the_same_loss_and_gradients_in_less_memory(cls: Any, precision: str) -> None:
    batch = pretraining_batch() if cls is BertForPreTraining else BATCH
    loss, gradients, kept = step(cls, batch, False, precision)
    again, same, less = step(cls, batch, True, precision)
    assert torch.equal(loss, again)
    for name, gradient in gradients.items():
        assert (gradient is None) == (same[name] is None)
        assert gradient is None or torch.equal(gradient, same[name]), name
    assert less < 0.5 * kept


def test_dropout_acts_and_evaluation_recomputes_nothing() -> None:
    """Control: with other masks the loss is another one; without training mode there is nothing to keep."""
    model = tiny_model()
    model.set_gradient_checkpointing()
    losses = set()
    for seed in (1, 2):
        torch.manual_seed(seed)
        losses.add(model.forward_packed(BATCH).loss_terms["loss"].total.item())
    assert len(losses) == 2
    calls = []
    for layer in model.bert.encoder.layer:
        layer.ffn_up.register_forward_hook(lambda *args: calls.append(1))
    model.forward_packed(BATCH).loss_terms["loss"].total.backward()
    assert len(calls) == 4  # both layers twice
    calls.clear()
    model.eval()
    model.forward_packed(BATCH).loss_terms["loss"].total.backward()
    assert len(calls) == 2


def test_training_is_the_same_run() -> None:
    models = [tiny_model(), tiny_model()]
    models[1].set_gradient_checkpointing()
    for model in models:
        toy_trainer(model, DATA, num_steps=10).run()
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)
