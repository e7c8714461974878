"""Self-attention over packed sequences: one module, three kernels.

Axes, in the order of the suffix letters::

    T all tokens of the batch, flat   N heads   H width of one head   D = N * H
    b sequences of one bucket         s length of one sequence, or of the longest in a bucket

Vaswani et al. 2017, section 3.2; Devlin et al. 2019 drop attention probabilities, not the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.batch import Layout
from bertkit.config import BertConfig
from bertkit.model.dropout import Dropout, dropout
from bertkit.model.linear import Linear

#: ``(q, k, v, layout, dropout rate) -> out``, each tensor ``(T, N, H)``.
Kernel = Callable[[Tensor, Tensor, Tensor, Layout, float], Tensor]


#: Up to this many keys, plain batched products are faster on a CPU than the fused kernel, which pays for each block.
MAX_PLAIN_KEYS = 64


def attention_probabilities(q_sNH: Tensor, k_sNH: Tensor) -> Tensor:
    """Softmax of the scaled dot products of one sequence: ``(N, s, s)``, rows sum to 1."""
    scores_Nss = torch.einsum("qnh,knh->nqk", q_sNH, k_sNH) / math.sqrt(q_sNH.shape[-1])
    return scores_Nss.softmax(dim=-1)


def attend_reference(q_TNH: Tensor, k_TNH: Tensor, v_TNH: Tensor, layout: Layout, p: float) -> Tensor:
    """One sequence at a time, as the paper writes it. The other kernels are tested against it."""
    out = []
    for start, end in layout.spans():
        probs_Nss = attention_probabilities(q_TNH[start:end], k_TNH[start:end])
        out.append(torch.einsum("nqk,knh->qnh", dropout(probs_Nss, p), v_TNH[start:end]))
    return torch.cat(out)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Sequences of similar length that one batched product serves.

    sequences: their numbers in the batch, in order.
    rows: flat rows, int64 ``(b * s,)``, each sequence filled up to s with its own first row; None when the b
        sequences lie one after another and all have length s: then they are rows ``start : start + b * s``.
    mask: float ``(b, 1, 1, s)``, 0 at real keys and -inf at filled-up ones; None with ``rows`` None.
    real: positions of the real tokens among ``rows``, int64; None with ``rows`` None.
    """

    shape: tuple[int, int]
    start: int
    sequences: tuple[int, ...]
    rows: Tensor | None = None
    mask: Tensor | None = None
    real: Tensor | None = None


def _similar(shortest: int, longest: int) -> bool:
    """Whether filling ``shortest`` up to ``longest`` costs less than another call."""
    return longest <= shortest + 8 + shortest // 8


@lru_cache(maxsize=256)
def buckets(lengths: tuple[int, ...]) -> tuple[Bucket, ...]:
    """Group the sequences of a packed batch by length. Depends on the lengths only, so all layers share it."""
    starts = Layout(lengths).boundaries
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    groups: list[list[int]] = []
    for b in order:
        if groups and _similar(lengths[groups[-1][0]], lengths[b]):
            groups[-1].append(b)
        else:
            groups.append([b])
    return tuple(_bucket(group, lengths, starts) for group in sorted(map(sorted, groups)))


@lru_cache(maxsize=256)
def way_back(lengths: tuple[int, ...]) -> Tensor | None:
    """Where each flat row of the batch lies when the real rows of :func:`buckets` are laid end to end, int64 ``(T,)``.

    None when every row is at its own place already, as in a batch sorted by length.
    """
    rows = []
    for bucket in buckets(lengths):
        if bucket.rows is None:
            rows.append(torch.arange(bucket.start, bucket.start + bucket.shape[0] * bucket.shape[1]))
        else:
            assert bucket.real is not None
            rows.append(bucket.rows[bucket.real])
    back = torch.cat(rows).argsort()
    return None if torch.equal(back, torch.arange(len(back))) else back


def _bucket(group: list[int], lengths: tuple[int, ...], starts: tuple[int, ...]) -> Bucket:
    longest = max(lengths[b] for b in group)
    shape = (len(group), longest)
    adjacent = group[-1] - group[0] + 1 == len(group)
    if adjacent and all(lengths[b] == longest for b in group):
        return Bucket(shape, starts[group[0]], tuple(group))
    first_b1 = torch.tensor([[starts[b]] for b in group])
    length_b1 = torch.tensor([[lengths[b]] for b in group])
    column_1s = torch.arange(longest)[None, :]
    real_bs = column_1s < length_b1
    rows = torch.where(real_bs, first_b1 + column_1s, first_b1).flatten()
    mask = torch.zeros(real_bs.shape).masked_fill_(~real_bs, -torch.inf)[:, None, None, :]
    return Bucket(shape, starts[group[0]], tuple(group), rows, mask, real_bs.flatten().nonzero().squeeze(1))


def attend_bucketed(q_TNH: Tensor, k_TNH: Tensor, v_TNH: Tensor, layout: Layout, p: float) -> Tensor:
    """Batched products over sequences of similar length; runs on every device and type, with dropout.

    The gaps that buckets fill up cost attention only, which is a few per cent of the work at usual lengths; the
    linear layers never see them.
    """
    plan = buckets(layout.lengths)
    if len(plan) == 1 and plan[0].rows is None:
        return _attend_bucket(q_TNH, k_TNH, v_TNH, plan[0], p)
    parts = []
    for bucket in plan:
        if bucket.rows is None:
            span = slice(bucket.start, bucket.start + bucket.shape[0] * bucket.shape[1])
            parts.append(_attend_bucket(q_TNH[span], k_TNH[span], v_TNH[span], bucket, p))
        else:
            assert bucket.real is not None
            index = bucket.rows.to(q_TNH.device)
            q, k, v = (x.index_select(0, index) for x in (q_TNH, k_TNH, v_TNH))
            real = bucket.real.to(q_TNH.device)
            parts.append(_attend_bucket(q, k, v, bucket, p).index_select(0, real))
    out_TNH = torch.cat(parts)
    back = way_back(layout.lengths)
    return out_TNH if back is None else out_TNH.index_select(0, back.to(q_TNH.device))


def attend_first(q_BNH: Tensor, k_TNH: Tensor, v_TNH: Tensor, layout: Layout, p: float) -> Tensor:
    """Attention of one query a sequence over the whole sequence: ``(B, N, H)``. For the first token of each."""
    plan = buckets(layout.lengths)
    parts = []
    for bucket in plan:
        size = bucket.shape[0] * bucket.shape[1]
        index = torch.arange(bucket.start, bucket.start + size) if bucket.rows is None else bucket.rows
        k, v = (x.index_select(0, index.to(x.device)) for x in (k_TNH, v_TNH))
        q = q_BNH.index_select(0, torch.tensor(bucket.sequences, device=q_BNH.device))
        parts.append(_attend_bucket(q, k, v, bucket, p))
    order = torch.tensor([b for bucket in plan for b in bucket.sequences], device=q_BNH.device)
    return torch.cat(parts).index_select(0, order.argsort())


def _attend_bucket(q: Tensor, k: Tensor, v: Tensor, bucket: Bucket, p: float) -> Tensor:
    """Keys and values ``(b * s, N, H)``, queries the same or one a sequence, ``(b, N, H)``; out as the queries."""
    q_bNqH, k_bNsH, v_bNsH = (x.unflatten(0, (bucket.shape[0], -1)).transpose(1, 2) for x in (q, k, v))
    mask = None if bucket.mask is None else bucket.mask.to(q.device, q.dtype)
    if p == 0.0 and (k_bNsH.shape[2] > MAX_PLAIN_KEYS or q.device.type != "cpu"):
        out_bNqH = F.scaled_dot_product_attention(q_bNqH, k_bNsH, v_bNsH, attn_mask=mask)
    else:
        scores_bNqs = (q_bNqH / math.sqrt(q.shape[-1])) @ k_bNsH.mT
        probs_bNqs = (scores_bNqs if mask is None else scores_bNqs + mask).softmax(dim=-1)
        out_bNqH = dropout(probs_bNqs, p) @ v_bNsH
    return out_bNqH.transpose(1, 2).flatten(0, 1)


class SelfAttention(nn.Module):
    """Multi-head self-attention; query, key and value are one matrix product."""

    def __init__(self, config: BertConfig, attend: Kernel = attend_bucketed) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.qkv = Linear(config.hidden_size, 3 * config.hidden_size)
        self.out = Linear(config.hidden_size, config.hidden_size)
        self.dropout = Dropout(config.attention_probs_dropout_prob)
        self.attend = attend

    def forward(self, x_TD: Tensor, layout: Layout, want_probs: bool = False) -> tuple[Tensor, list[Tensor] | None]:
        """``(T, D)`` to ``(T, D)``, before dropout and residual; with ``want_probs`` also B tensors ``(N, s, s)``."""
        q_TNH, k_TNH, v_TNH = self._project(x_TD)
        out_TNH = self.attend(q_TNH, k_TNH, v_TNH, layout, self.dropout.rate())
        probs = None
        if want_probs:
            probs = [attention_probabilities(q_TNH[start:end], k_TNH[start:end]) for start, end in layout.spans()]
        return self.out(out_TNH.flatten(1)), probs

    def forward_first(self, x_TD: Tensor, layout: Layout) -> Tensor:
        """The rows of :meth:`forward` at the first token of each sequence only, ``(B, D)``."""
        q_TNH, k_TNH, v_TNH = self._project(x_TD)
        q_BNH = q_TNH.index_select(0, layout.first_rows(x_TD.device))
        return self.out(attend_first(q_BNH, k_TNH, v_TNH, layout, self.dropout.rate()).flatten(1))  # type: ignore[no-any-return]

    def _project(self, x_TD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q_TNH, k_TNH, v_TNH = self.qkv(x_TD).unflatten(-1, (3, self.num_heads, -1)).unbind(dim=1)
        return q_TNH, k_TNH, v_TNH
