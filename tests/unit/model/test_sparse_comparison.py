"""The loss of sparse vectors against the formulas in numpy, one text at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertkit.batch import Batch, Layout
from bertkit.checkpoints.sparse_folder import SparseSettings, read_sparse_settings
from bertkit.config.bert_config import BertConfig
from bertkit.model.models import BertForMaskedLM
from bertkit.model.sparse_comparison import SparseComparison
from bertkit.model.text_comparison import ComparedTexts

TEXTS = [[2, 5, 6, 3], [2, 7, 3], [2, 8, 9, 10, 3], [2, 11, 3], [2, 12, 13, 3], [2, 9, 3]]
#: Three rows; two have the same anchor, one has a negative of its own.
COLUMNS = [[0, 2, 5], [1, 3, -1], [0, 4, -1]]
QUERY, DOCUMENT = 0.3, 0.7


def training(pooling="max", logs=1, **more):
    torch.manual_seed(0)
    shape = BertConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                       max_position_embeddings=16, hidden_dropout_prob=0.0,
                       attention_probs_dropout_prob=0.0)  # fmt: skip
    network = BertForMaskedLM(shape)
    with torch.no_grad():
        network.bert.embeddings.word_embeddings.weight.mul_(20)  # so that some weights are far from 0
    settings = SparseSettings(pooling, logs, 16)
    return SparseComparison(network, settings, query_flops=QUERY, document_flops=DOCUMENT, **more)


def batch():
    flat, lengths = torch.tensor([token for text in TEXTS for token in text]), tuple(map(len, TEXTS))
    places = torch.cat([torch.arange(length) for length in lengths])
    return ComparedTexts(Batch(flat, torch.zeros_like(flat), places, Layout(lengths)), torch.tensor(COLUMNS), 2)


def by_hand(model, ramp):
    """The two losses, from the logits of each text by itself."""
    weights = []
    for text in TEXTS:
        logits = model.network(torch.tensor([text])).logits[0].detach().double().numpy()
        found = np.maximum(logits, 0)
        for _ in range(model.settings.logs):
            found = np.log(1 + found)
        weights.append(found.max(axis=0) if model.settings.pooling == "max" else found.sum(axis=0))
    weights = np.array(weights)
    anchors, others = weights[:2], weights[2:]
    total = 0.0
    for anchor, positive, _ in COLUMNS:
        scores = others @ anchors[anchor]
        total += np.log(np.exp(scores - scores.max()).sum()) + scores.max() - scores[positive - 2]
    flops = [(part.mean(axis=0) ** 2).sum() for part in (anchors, others)]
    return total / len(COLUMNS), ramp * (QUERY * flops[0] + DOCUMENT * flops[1])


@pytest.mark.parametrize(("pooling", "logs"), [("max", 1), ("sum", 1), ("max", 2)])
@pytest.mark.parametrize("progress", [0.0, 0.1, 0.5])
def test_the_loss_is_that_of_the_paper(pooling, logs, progress):
    model = training(pooling, logs).eval()
    model.progress = progress
    found = {name: term.mean().item() for name, term in model.forward_packed(batch()).loss_terms.items()}
    search, flops = by_hand(model, min(1.0, 3 * progress) ** 2)
    assert found == pytest.approx({"search": search, "flops": flops}, rel=1e-4, abs=1e-6)
    assert search > 0
    assert model.num_targets(batch()) == {"search": 3.0, "flops": 1.0}


def test_gradients_in_parts_are_those_of_the_whole_batch():
    """In float64: in another order of sums float32's gradients differ by what a processor makes of them."""
    grads = []
    for most in (1024, 5):
        model = training(max_tokens=most).double().train()
        model.progress = 1.0
        sum(term.mean() for term in model.forward_packed(batch()).loss_terms.values()).backward()
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-9, atol=1e-11)
    assert grads[0].abs().max() > 1e-3


def test_the_penalty_makes_weights_smaller():
    model = training().train()
    model.progress = 1.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = (model.weights(batch()) > 0).sum()
    for _ in range(20):
        model.forward_packed(batch()).loss_terms["flops"].mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert (model.weights(batch()) > 0).sum() < before


def test_the_folder_says_how_weights_are_made(tmp_path):
    model = training("sum", 2)
    model.save_pretrained(tmp_path)
    assert read_sparse_settings(tmp_path) == SparseSettings("sum", 2, 16)
