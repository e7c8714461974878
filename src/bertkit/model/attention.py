"""Self-attention over packed sequences: one module, two kernels.

Axes, in the order of the suffix letters::

    T all tokens of the batch, flat   P places of the bucketed rows   R chosen rows
    N heads   H width of one head   D = N * H
    b sequences of one bucket         s length of one sequence, or of the longest in a bucket

Vaswani et al. 2017, section 3.2; Devlin et al. 2019 drop attention probabilities, not the output.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bertkit.batch import Layout
from bertkit.config.bert_config import BertConfig
from bertkit.model.kernels.dropout import Dropout, dropout
from bertkit.model.kernels.linear import Linear

#: ``(qkv, layout, dropout rate) -> out``: query, key and value of each token, ``(T, 3, N, H)``, to ``(T, N, H)``.
Kernel = Callable[[Tensor, Layout, float], Tensor]


#: Up to this many keys, plain batched products are faster on a CPU than the fused kernel, which pays for each block;
#: and whose half-precision gradient is several times slower than they are.
MAX_PLAIN_KEYS = {torch.float32: 64, torch.bfloat16: 512, torch.float16: 512}


def attention_probabilities(q_sNH: Tensor, k_sNH: Tensor) -> Tensor:
    """Softmax of the scaled dot products of one sequence: ``(N, s, s)``, rows sum to 1."""
    scores_Nss = torch.einsum("qnh,knh->nqk", q_sNH, k_sNH) / math.sqrt(q_sNH.shape[-1])
    return scores_Nss.softmax(dim=-1)


def attend_reference(qkv_T3NH: Tensor, layout: Layout, p: float) -> Tensor:
    """One sequence at a time, as the paper writes it. The other kernel is tested against it."""
    out = []
    for start, end in layout.spans():
        q_sNH, k_sNH, v_sNH = qkv_T3NH[start:end].unbind(1)
        probs_Nss = attention_probabilities(q_sNH, k_sNH)
        out.append(torch.einsum("nqk,knh->qnh", dropout(probs_Nss, p), v_sNH))
    return torch.cat(out)


@dataclass(frozen=True, slots=True)
class Bucket:
    """Sequences of similar length that one batched product serves.

    shape: ``(b, s)``.
    start: first of its b * s rows among the rows of :class:`Buckets`.
    sequences: their numbers in the batch, in order.
    mask: float ``(b, 1, 1, s)``, 0 at real keys and -inf at filled-up ones; None when nothing is filled up.
    """

    shape: tuple[int, int]
    start: int
    sequences: tuple[int, ...]
    mask: Tensor | None

    @property
    def span(self) -> slice:
        """Its rows."""
        return slice(self.start, self.start + self.shape[0] * self.shape[1])


@dataclass(frozen=True, slots=True)
class Buckets:
    """A packed batch, laid out for batched products.

    rows: flat row of the batch at each place, int64 ``(P,)``. A sequence shorter than its bucket is filled up with its
        own first row.
    back: where each token of the batch lies among ``rows``, int64 ``(T,)``: ``rows[back]`` is ``0 ... T - 1``.
        Both are None when every token is at its own place already.
    """

    each: tuple[Bucket, ...]
    rows: Tensor | None
    back: Tensor | None

    def gather(self, x: Tensor) -> Tensor:
        """``(T, ...)`` to ``(P, ...)``."""
        if self.rows is None or self.back is None:
            return x
        taken: Tensor = _Gather.apply(x, self.rows, self.back)
        return taken

    def give_back(self, x: Tensor) -> Tensor:
        """``(P, ...)`` to ``(T, ...)``."""
        if self.back is None:
            return x
        given: Tensor = _GiveBack.apply(x, self.back)
        return given

    def to(self, device: torch.device) -> Buckets:
        """The same with all tensors on ``device``."""
        each = tuple(replace(b, mask=None if b.mask is None else b.mask.to(device)) for b in self.each)
        if self.rows is None or self.back is None:
            return Buckets(each, None, None)
        return Buckets(each, self.rows.to(device), self.back.to(device))


class _Gather(torch.autograd.Function):
    """``x[rows]``, with a gradient that only reads: filled-up places have none, so no two are to be added.

    Their keys have probability 0, and what their queries give is thrown away. ``index_select`` cannot know that and
    adds up row by row, which took a quarter of a training step.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return x.index_select(0, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (back,) = ctx.saved_tensors
        return grad.index_select(0, back), None, None


class _GiveBack(torch.autograd.Function):
    """``x[back]``, with a gradient of 0 at the places that ``back`` leaves out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        ctx.num_places = len(x)
        return x.index_select(0, back)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (back,) = ctx.saved_tensors
        return grad.new_zeros((ctx.num_places, *grad.shape[1:])).index_copy_(0, back, grad), None


@dataclass(frozen=True, slots=True)
class Chosen:
    """Some rows of a packed batch, for which alone the top layer is wanted.

    rows: flat rows, int64 ``(R,)``, ascending, each once.
    lengths: how many of them each sequence has, at least one: B Python ints.
    """

    rows: Tensor
    lengths: tuple[int, ...]

    @classmethod
    def first(cls, layout: Layout, device: torch.device) -> Chosen:
        """The first token of each sequence."""
        return cls(layout.first_rows(device), (1,) * layout.num_sequences)

    @classmethod
    def first_and(cls, rows: Tensor, layout: Layout) -> Chosen:
        """The first token of each sequence, and any ``rows`` in any order. Waits for the device of ``rows``."""
        both = torch.cat([layout.first_rows(rows.device), rows]).unique()
        ends = torch.tensor(layout.boundaries[1:], device=rows.device)
        owners = torch.searchsorted(ends, both, right=True)
        return cls(both, tuple(torch.bincount(owners, minlength=layout.num_sequences).tolist()))

    def places_of(self, rows: Tensor) -> Tensor:
        """Where ``rows``, all of them chosen, stand among :attr:`rows`."""
        return torch.searchsorted(self.rows, rows)


def _similar(shortest: int, longest: int) -> bool:
    """Whether filling ``shortest`` up to ``longest`` costs less than another call."""
    return longest <= shortest + 8 + shortest // 8


@lru_cache(maxsize=256)
@torch.inference_mode(False)  # training may come upon what an evaluation has made, and must be able to save it
def buckets(lengths: tuple[int, ...]) -> Buckets:
    """Group the sequences of a packed batch by length. Depends on the lengths only, so all layers share it.

    All of it is on the CPU; :func:`buckets_on` moves it to another device, once a batch and not once a layer.
    """
    return _lay_out(_groups(lengths), lengths)


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def query_buckets(lengths: tuple[int, ...], num_queries: tuple[int, ...]) -> Buckets:
    """The same groups of sequences for rows of another kind, of which each sequence has ``num_queries``."""
    return _lay_out(_groups(lengths), num_queries)


def _groups(lengths: tuple[int, ...]) -> list[list[int]]:
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    groups: list[list[int]] = []
    for b in order:
        if groups and _similar(lengths[groups[-1][0]], lengths[b]):
            groups[-1].append(b)
        else:
            groups.append([b])
    return sorted(map(sorted, groups))


def _lay_out(groups: list[list[int]], lengths: tuple[int, ...]) -> Buckets:
    starts = Layout(lengths).boundaries
    each, rows, real = [], [], []
    num_places = 0
    for group in groups:
        shape = (len(group), max(lengths[b] for b in group))
        first_b1 = torch.tensor([[starts[b]] for b in group])
        length_b1 = torch.tensor([[lengths[b]] for b in group])
        column_1s = torch.arange(shape[1])[None, :]
        real_bs = column_1s < length_b1
        mask = None
        if not real_bs.all():
            mask = torch.zeros(real_bs.shape).masked_fill_(~real_bs, -torch.inf)[:, None, None, :]
        each.append(Bucket(shape, num_places, tuple(group), mask))
        rows.append(torch.where(real_bs, first_b1 + column_1s, first_b1).flatten())
        real.append(real_bs.flatten())
        num_places += shape[0] * shape[1]
    rows_P, places_T = torch.cat(rows), torch.cat(real).nonzero().squeeze(1)
    if torch.equal(rows_P, torch.arange(num_places)):
        return Buckets(tuple(each), None, None)
    back_T = torch.empty_like(places_T)
    back_T[rows_P[places_T]] = places_T
    return Buckets(tuple(each), rows_P, back_T)


def buckets_on(lengths: tuple[int, ...], device: torch.device) -> Buckets:
    """:func:`buckets`, on a device."""
    return buckets(lengths) if device.type == "cpu" else _moved_buckets(lengths, device)


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def _moved_buckets(lengths: tuple[int, ...], device: torch.device) -> Buckets:
    return buckets(lengths).to(device)


def attend_bucketed(qkv_T3NH: Tensor, layout: Layout, p: float) -> Tensor:
    """Batched products over sequences of similar length; runs on every device and type, with dropout.

    The gaps that buckets fill up cost attention only, which is a few per cent of the work at usual lengths; the
    linear layers never see them.
    """
    plan = buckets_on(layout.lengths, qkv_T3NH.device)
    q_PNH, k_PNH, v_PNH = plan.gather(qkv_T3NH).unbind(1)
    parts = [
        _attend_bucket(q_PNH[bucket.span], k_PNH[bucket.span], v_PNH[bucket.span], bucket, p) for bucket in plan.each
    ]
    return plan.give_back(torch.cat(parts) if len(parts) > 1 else parts[0])


def attend_chosen(qkv_T3NH: Tensor, layout: Layout, p: float, chosen: Chosen) -> Tensor:
    """Attention of the chosen rows over the whole of their sequences: ``(R, N, H)``."""
    plan = buckets_on(layout.lengths, qkv_T3NH.device)
    queries = query_buckets(layout.lengths, chosen.lengths).to(qkv_T3NH.device)
    q_RNH: Tensor = _GiveBack.apply(qkv_T3NH[:, 0], chosen.rows)
    q_QNH = queries.gather(q_RNH)
    k_PNH, v_PNH = plan.gather(qkv_T3NH[:, 1:]).unbind(1)
    parts = [
        _attend_bucket(q_QNH[asking.span], k_PNH[bucket.span], v_PNH[bucket.span], bucket, p)
        for asking, bucket in zip(queries.each, plan.each, strict=True)
    ]
    return queries.give_back(torch.cat(parts) if len(parts) > 1 else parts[0])


def _attend_bucket(q: Tensor, k: Tensor, v: Tensor, bucket: Bucket, p: float) -> Tensor:
    """Keys and values ``(b * s, N, H)``, queries the same or fewer, ``(b * q, N, H)``; out as the queries."""
    q_bNqH, k_bNsH, v_bNsH = (x.unflatten(0, (bucket.shape[0], -1)).transpose(1, 2) for x in (q, k, v))
    mask = None if bucket.mask is None else bucket.mask.to(q.dtype)
    # The fused kernels of a GPU drop probabilities themselves; a CPU's have no dropout worth the name.
    if q.is_cuda or (p == 0.0 and (q.device.type != "cpu" or k_bNsH.shape[2] > MAX_PLAIN_KEYS.get(q.dtype, 0))):
        out_bNqH = F.scaled_dot_product_attention(q_bNqH, k_bNsH, v_bNsH, attn_mask=mask, dropout_p=p)
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
        qkv_T3NH = self._project(x_TD)
        out_TNH = self.attend(qkv_T3NH, layout, self.dropout.rate())
        probs = None
        if want_probs:
            q_TNH, k_TNH, _ = qkv_T3NH.unbind(1)
            probs = [attention_probabilities(q_TNH[start:end], k_TNH[start:end]) for start, end in layout.spans()]
        return self.out(out_TNH.flatten(1)), probs

    def forward_chosen(self, x_TD: Tensor, layout: Layout, chosen: Chosen) -> Tensor:
        """The chosen rows of :meth:`forward` only, ``(R, D)``."""
        out_RNH = attend_chosen(self._project(x_TD), layout, self.dropout.rate(), chosen)
        return self.out(out_RNH.flatten(1))  # type: ignore[no-any-return]

    def _project(self, x_TD: Tensor) -> Tensor:
        return self.qkv(x_TD).unflatten(-1, (3, self.num_heads, -1))  # type: ignore[no-any-return]
