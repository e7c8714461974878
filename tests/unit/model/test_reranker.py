"""The losses of a reranker beside plain loops over their formulas."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from bertkit.batch import pack
from bertkit.config.reading_settings import RankLoss
from bertkit.model.reranker import MU, RANK_LOSSES, Reranker
from training_helpers import TINY

GROUPS = torch.tensor([0, 5, 6, 13, 16])
TORCH = torch.float64


def plain_pointwise(scores: list[float], gains: list[float]) -> float:
    shares = [1 / (1 + math.exp(-score)) for score in scores]
    return -sum(
        gain * math.log(share) + (1 - gain) * math.log(1 - share) for share, gain in zip(shares, gains, strict=True)
    )


def plain_listwise(scores: list[float], gains: list[float]) -> float:
    total = sum(math.exp(score) for score in scores)
    shares = [math.exp(score) / total for score in scores]
    return -sum(gain / sum(gains) * math.log(share) for share, gain in zip(shares, gains, strict=True))


def plain_lambda(scores: list[float], gains: list[float]) -> float:
    """Wang et al. 2018, NDCG-Loss2++: ranks counted from 1, discounts D(r) = log2(1 + r)."""
    order = sorted(range(len(scores)), key=lambda n: -scores[n])
    rank = {document: place for place, document in enumerate(order, 1)}
    best = sum((2**gain - 1) / math.log2(1 + r) for r, gain in enumerate(sorted(gains, reverse=True), 1))
    total = 0.0
    for i, gain in enumerate(gains):
        for j, other in enumerate(gains):
            if gain <= other:
                continue
            between = abs(rank[i] - rank[j])
            rho = abs(1 / math.log2(1 + rank[i]) - 1 / math.log2(1 + rank[j]))
            delta = abs(1 / math.log2(1 + between) - 1 / math.log2(2 + between))
            weight = (rho + MU * delta) * (2**gain - 2**other) / best
            total += weight * math.log2(1 + math.exp(scores[j] - scores[i]))
    return total


PLAIN = {"pointwise": plain_pointwise, "listwise": plain_listwise, "lambda": plain_lambda}


def drawn(loss: str) -> tuple[Tensor, Tensor]:
    torch.manual_seed(3)
    scores = torch.randn(int(GROUPS[-1]), dtype=TORCH)
    gains = torch.randint(0, 2 if loss == "pointwise" else 4, scores.shape).to(TORCH)
    gains[GROUPS[2] :] = 0.0  # the last two queries have no relevant document ...
    gains[GROUPS[2]] = 1.0  # ... the last one alone
    return scores, gains


@pytest.mark.parametrize("loss", PLAIN)
def test_losses_are_their_formulas(loss: RankLoss) -> None:
    scores, gains = drawn(loss)
    found = RANK_LOSSES[loss](scores, gains, GROUPS)
    expected = sum(
        PLAIN[loss](scores[start:end].tolist(), gains[start:end].tolist())
        for start, end in pairwise(GROUPS.tolist())
        if loss == "pointwise" or gains[start:end].any()
    )
    assert float(found.total) == pytest.approx(expected)
    assert found.num_targets == (16 if loss == "pointwise" else 4)
    if loss != "pointwise":  # a control: only differences of scores count, but not where they are of another query
        moved = scores.clone()
        moved[:5] += 1.0
        assert float(RANK_LOSSES[loss](moved, gains, GROUPS).total) == pytest.approx(expected)
        moved[0] += 1.0
        assert float(RANK_LOSSES[loss](moved, gains, GROUPS).total) != pytest.approx(expected)


@pytest.mark.parametrize("loss", PLAIN)
def test_gradients_are_finite_and_zero_where_there_is_nothing_to_learn(loss: RankLoss) -> None:
    scores, gains = drawn(loss)
    scores[GROUPS[2]] = -200.0  # far behind: exp underflows
    scores.requires_grad_()
    RANK_LOSSES[loss](scores, gains, GROUPS).total.backward()
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
    assert float(scores.grad[GROUPS[2]]) < 0, "a relevant document that is far behind is pulled up"
    if loss != "pointwise":
        assert not scores.grad[GROUPS[3] :].any()


def test_the_model_learns_in_groups() -> None:
    torch.manual_seed(0)
    model = Reranker(TINY.replace(num_labels=1)).eval()
    batch = pack([[2, 7, 3], [2, 8, 9, 3], [2, 5, 3]])
    logits = model.forward_packed(batch).logits
    assert logits is not None
    labels, groups = torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0, 2, 3])
    labelled = batch.with_target("labels", labels).with_target("groups", groups)
    for loss, count in (("listwise", 2.0), ("pointwise", 3.0), ("lambda", 2.0)):
        model.rank_loss = loss
        term = model.forward_packed(labelled).loss_terms["loss"]
        assert model.num_targets(labelled) == {"loss": count} == {"loss": term.num_targets}
        expected = RANK_LOSSES[loss](logits[:, 0].detach(), labels, groups).total
        assert float(term.total.detach()) == pytest.approx(float(expected))
