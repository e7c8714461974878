"""A sequence classifier with one output that is trained to order the documents of a query.

Letters of the array shapes: N documents of all queries in a batch, Q queries, M most documents of a query. Each loss
takes scores and gains ``(N,)``, query after query, and where each query's documents begin, int64 ``(Q + 1,)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from bertkit.batch import Batch
from bertkit.config.reading_settings import RankLoss
from bertkit.model.losses import LossTerm
from bertkit.model.models import BertForSequenceClassification
from bertkit.model.output import ModelOutput

#: Weight of the distance of ranks beside the difference of discounts; that of sentence-transformers.
MU = 10.0


def pointwise_loss(scores_N: Tensor, gains_N: Tensor, groups: Tensor) -> LossTerm:
    """Binary cross-entropy of each document; gains from 0 to 1."""
    total = F.binary_cross_entropy_with_logits(scores_N, gains_N, reduction="sum")
    return LossTerm(total, float(len(gains_N)))


def listwise_loss(scores_N: Tensor, gains_N: Tensor, groups: Tensor) -> LossTerm:
    """Cross-entropy of the softmax over a query's documents against their shares of its gains, mean over queries.

    Bruch et al. 2019 ("An Analysis of the Softmax Cross Entropy Loss for Learning-to-Rank with Binary Relevance"): a
    bound of MRR and, for binary gains, of nDCG. A query without a relevant document adds nothing.
    """
    gains_QM = _by_query(gains_N, groups, 0.0)
    shares_QM = gains_QM / gains_QM.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(gains_QM.dtype).tiny)
    log_shares_QM = _by_query(scores_N, groups, -torch.inf).log_softmax(dim=-1)
    total = -(shares_QM * log_shares_QM.masked_fill(shares_QM == 0, 0.0)).sum()
    return LossTerm(total, float(len(gains_QM)))


def lambda_loss(scores_N: Tensor, gains_N: Tensor, groups: Tensor) -> LossTerm:
    """NDCG-Loss2++ of Wang et al. 2018 ("The LambdaLoss Framework for Ranking Metric Optimization"), mean over queries.

    ``sum (rho + mu delta) |G_i - G_j| log2(1 + exp(s_j - s_i))`` over pairs of documents of which i is more relevant,
    where G is ``(2 ** gain - 1) / maxDCG``. Of discounts ``1 / log2(rank + 1)``, rho is the difference between those at
    both ranks, and delta between those at the distance of the ranks and one further.
    """
    real_QM = _by_query(torch.ones_like(gains_N), groups, 0.0) > 0
    scores_QM, order_QM = _by_query(scores_N, groups, -torch.inf).sort(dim=-1, descending=True)
    gains_QM = _by_query(gains_N, groups, 0.0)
    most = gains_QM.shape[1]
    rank = torch.arange(most, device=gains_N.device)
    discounts = 1.0 / torch.log2(torch.arange(most + 1, device=gains_N.device, dtype=gains_N.dtype) + 2.0)
    best = gains_QM.sort(dim=-1, descending=True).values.exp2().sub(1.0) @ discounts[:most]
    gains_QM, real_QM = gains_QM.gather(1, order_QM), real_QM.gather(1, order_QM)
    G_QM = (gains_QM.exp2() - 1.0) / best.clamp(min=torch.finfo(best.dtype).tiny)[:, None]
    distance = (rank[:, None] - rank[None, :]).abs()
    delta = torch.where(distance > 0, discounts[(distance - 1).clamp(min=0)] - discounts[distance], 0.0)
    rho = (discounts[:most, None] - discounts[None, :most]).abs()
    pairs_QMM = (gains_QM[:, :, None] > gains_QM[:, None, :]) & real_QM[:, :, None] & real_QM[:, None, :]
    behind = torch.where(pairs_QMM, scores_QM[:, None, :] - scores_QM[:, :, None], 0.0)
    weights = (rho + MU * delta) * (G_QM[:, :, None] - G_QM[:, None, :])
    total = (weights * F.softplus(behind) / math.log(2))[pairs_QMM].sum()
    return LossTerm(total, float(len(gains_QM)))


RANK_LOSSES: Mapping[RankLoss, Callable[[Tensor, Tensor, Tensor], LossTerm]] = {
    "listwise": listwise_loss,
    "pointwise": pointwise_loss,
    "lambda": lambda_loss,
}


class Reranker(BertForSequenceClassification):
    """Saved as the class that it extends, so that other software loads it; ``logits`` are ``(N, 1)``.

    Targets: ``labels``, float ``(N,)``, how relevant each document is, and ``groups``, int64 ``(Q + 1,)``: query q has
    the documents ``groups[q] : groups[q + 1]``. ``rank_loss`` says what they are compared by.
    """

    targets = ("labels", "groups")  # type: ignore[assignment]  # one more than the class that it extends
    rank_loss: RankLoss = "listwise"

    def num_targets(self, batch: Batch) -> dict[str, float]:
        """Documents of the pointwise loss, queries of the others."""
        count = len(batch.targets["labels"]) if self.rank_loss == "pointwise" else len(batch.targets["groups"]) - 1
        return {"loss": float(count)}

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        super()._head(encoded, replace(batch, targets={}), out)
        if not batch.targets:
            return {}
        assert out.logits is not None
        scores_N = out.logits[:, 0].float()
        return {"loss": RANK_LOSSES[self.rank_loss](scores_N, *(batch.targets[name] for name in self.targets))}


def _by_query(values_N: Tensor, groups: Tensor, fill: float) -> Tensor:
    """``(N,)`` to ``(Q, M)``: a row for each query, ``fill`` behind its documents."""
    sizes = groups.diff()
    real_QM = torch.arange(int(sizes.max()), device=values_N.device) < sizes[:, None]
    return values_N.new_full(real_QM.shape, fill).masked_scatter(real_QM, values_N)
