"""Dropout acts where the paper puts it, at its rate, in training mode only, and a seed fixes it."""

from __future__ import annotations

import copy

import pytest
import torch
from scipy import stats

from bertkit import BertConfig
from bertkit.batch import Layout, pack
from bertkit.model.attention import SelfAttention, attend_reference
from bertkit.model.kernels.bucketed_attention import attend_bucketed, buckets
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.dropout import Dropout, add_dropout, dropout, keep_mask
from bertkit.model.models import BertForSequenceClassification, BertModel

KERNELS = [attend_reference, attend_bucketed]
RAGGED = (5, 1, 9, 9, 30, 2)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(1000, 333), (7,), (1, 3, 100_001)])
def test_rate_and_scale(p, shape):
    torch.manual_seed(1)
    x = torch.ones(shape)
    out = dropout(x, p)
    zeros = int((out == 0).sum())
    assert out[out != 0].sub(1 / (1 - p)).abs().max() < 1e-6 if zeros < x.numel() else True
    # 5 standard deviations of a binomial; a rate wrong by 1 % fails on the large shape.
    assert abs(zeros - p * x.numel()) <= 5 * (x.numel() * p * (1 - p)) ** 0.5


def test_values_are_independent():
    """Chi-squared over the 16 patterns of 4 neighbours, in a row and down a column."""
    torch.manual_seed(2)
    keep = keep_mask(torch.empty(4000, 400), 0.5).int()
    for quads in (keep.reshape(-1, 4), keep.T.reshape(-1, 4)):
        counts = torch.bincount((quads * torch.tensor([1, 2, 4, 8])).sum(1), minlength=16)
        assert stats.chisquare(counts.numpy()).pvalue > 1e-4


def test_masks_follow_torch_s_generator():
    x = torch.ones(100, 10)
    torch.manual_seed(3)
    first, second = dropout(x, 0.3), dropout(x, 0.3)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.3), first)
    assert torch.equal(dropout(x, 0.3), second)
    assert not torch.equal(first, second)


def test_gradient_is_the_mask_times_the_scale():
    x, residual = (torch.randn(50, 8, requires_grad=True) for _ in range(2))
    torch.manual_seed(4)
    out = add_dropout(residual, x, 0.25)
    out.sum().backward()
    kept = (out - residual).detach() != 0
    assert torch.allclose(x.grad, kept / 0.75)
    assert torch.equal(residual.grad, torch.ones_like(residual))


@pytest.mark.parametrize("attend", KERNELS)
def test_attention_drops_probabilities_in_training_only(attend):
    """With values that are all 1, each output is the sum of the kept probabilities over 0.5."""
    torch.manual_seed(5)
    layout = Layout(RAGGED)
    qkv = torch.randn(layout.num_tokens, 3, 2, 4)
    qkv[:, 2] = 1.0
    assert torch.allclose(attend(qkv, layout, 0.0), qkv[:, 2], atol=1e-6)
    dropped = attend(qkv, layout, 0.5)
    start, end = layout.spans()[4]
    assert dropped[start:end].std() > 0.01  # not the output dropped, which would give 0 or 2 only
    assert torch.equal(dropped[5:6].unique(), dropped[5, 0, :1]) or dropped[5].unique().numel() <= 2
    means = torch.stack([attend(qkv, layout, 0.5).mean() for _ in range(200)])
    assert abs(means.mean() - 1.0) < 5 * means.std() / 200**0.5


def attend_some(qkv, layout, p):
    rows = torch.tensor([20, 2, 0, 9, 10, 11])
    return attend_bucketed(qkv, layout, p, ChosenRows.first_and(rows, layout))


@pytest.mark.slow
@pytest.mark.parametrize("attend", [*KERNELS, attend_some])
def test_gradient_of_attention_with_dropout(attend):
    """Against finite differences, with the same mask each time; the filled-up places of buckets take no part."""
    layout = Layout((2, 4, 1))
    qkv = torch.randn(layout.num_tokens, 3, 2, 3, dtype=torch.float64, requires_grad=True)

    def run(qkv):
        torch.manual_seed(6)
        return attend(qkv, layout, 0.3)

    assert torch.autograd.gradcheck(run, (qkv,))


@pytest.mark.parametrize("attend", KERNELS)
def test_layer_is_random_in_training_only(attend):
    config = BertConfig(hidden_size=16, num_attention_heads=2, attention_probs_dropout_prob=0.5)
    layer, x = SelfAttention(config, attend), torch.randn(sum(RAGGED), 16)
    layer.eval()
    assert torch.equal(layer(x, Layout(RAGGED))[0], layer(x, Layout(RAGGED))[0])
    layer.train()
    assert not torch.equal(layer(x, Layout(RAGGED))[0], layer(x, Layout(RAGGED))[0])


def places(config: BertConfig, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The rates, in order, at which one training step of a two-layer classifier drops values."""
    from bertkit.model.kernels import dropout as module

    seen: list[float] = []
    original = module.keep_mask

    def spy(like: torch.Tensor, p: float) -> torch.Tensor:
        seen.append(p)
        return original(like, p)

    monkeypatch.setattr(module, "keep_mask", spy)
    model = BertForSequenceClassification(config).train()
    model.forward_packed(pack([[1, 2, 3], [4, 5, 6]]))
    return seen


def test_places_are_those_of_the_paper(monkeypatch):
    """Embeddings; then in each layer attention probabilities, attention output, feed-forward; then the classifier."""
    config = BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8,
        hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.3, classifier_dropout=0.4,
    )  # fmt: skip
    assert places(config, monkeypatch) == [0.2, 0.3, 0.2, 0.2, 0.3, 0.2, 0.2, 0.4]


def test_rate_zero_in_training_equals_eval():
    config = BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model, batch = BertModel(config), pack([[1, 2, 3], [4, 5], [6, 7, 8, 9]])
    trained = model.train().forward_packed(batch).last_hidden_state
    assert torch.equal(trained, model.eval().forward_packed(batch).last_hidden_state)


def test_prepacked_weights_follow_changes():
    torch.manual_seed(6)
    model = BertModel(BertConfig(vocab_size=30, hidden_size=16, num_attention_heads=2, num_hidden_layers=1)).eval()
    batch = pack([[1, 2, 3], [4, 5]])
    with torch.inference_mode():
        plain = model.forward_packed(batch).last_hidden_state
        assert torch.allclose(model.prepack().forward_packed(batch).last_hidden_state, plain, atol=1e-6)
    with torch.no_grad():
        model.encoder.layer[0].ffn_up.weight.mul_(3.0)
        changed = model.forward_packed(batch).last_hidden_state
        copied = copy.deepcopy(model)
        assert torch.allclose(copied.forward_packed(batch).last_hidden_state, changed, atol=1e-6)
    assert (changed - plain).abs().max() > 1e-2
    assert all(module._packed is None for module in model.train().modules() if hasattr(module, "_packed"))


def test_dropout_module_prints_its_rate():
    assert repr(Dropout(0.1)) == "Dropout(p=0.1)"
    assert buckets.cache_info().maxsize == 256
