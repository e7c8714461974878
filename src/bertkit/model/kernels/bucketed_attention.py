"""Attention over a packed batch in a few batched products: sequences of similar length share a bucket.

Axes, in the order of the suffix letters::

    T tokens of the batch, flat   P places of the buckets' keys   Q places of the buckets' queries   R chosen rows
    N heads   H width of one head   b sequences of one bucket   s longest sequence of a bucket   q its most queries
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from bertkit.batch import Layout
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.dropout import dropout

#: Up to this many keys, plain batched products beat the fused kernel on a CPU: that one pays for every block, and its
#: gradient in half precision is several times slower.
MAX_PLAIN_KEYS = {torch.float32: 64, torch.bfloat16: 512, torch.float16: 512}
#: Numbers in the longest register of a CPU. torch's softmax over fewer takes eight times as long for each of them, and
#: its gradient twelve times.
_REGISTER = 16


@dataclass(frozen=True, slots=True)
class Bucket:
    """Sequences that share one batched product, ``(b, s)``; ``mask``: float ``(b, 1, 1, s)``, -inf at padding."""

    shape: tuple[int, int]
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class Buckets:
    """A packed batch, laid out for batched products.

    rows: flat row of the batch at each place, int64 ``(P,)``. A sequence shorter than its bucket is padded with its own
        first row.
    back: the place of each token, int64 ``(T,)``: ``rows[back]`` is ``0 ... T - 1``.
        Both are None when the tokens are in place already.
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

    def restore(self, x: Tensor) -> Tensor:
        """``(P, ...)`` to ``(T, ...)``."""
        if self.back is None:
            return x
        taken: Tensor = _TakeDistinct.apply(x, self.back)
        return taken

    def split(self, x: Tensor) -> Sequence[Tensor]:
        """``(P, ...)`` to one tensor a bucket."""
        return x.split([b.shape[0] * b.shape[1] for b in self.each]) if len(self.each) > 1 else (x,)

    def to(self, device: torch.device) -> Buckets:
        """The same with all tensors on ``device``."""
        each = tuple(replace(b, mask=None if b.mask is None else b.mask.to(device)) for b in self.each)
        if self.rows is None or self.back is None:
            return Buckets(each, None, None)
        return Buckets(each, self.rows.to(device), self.back.to(device))


class _Gather(torch.autograd.Function):
    """``x[rows]``, with a gradient that is a plain read, because padding has none.

    Padded keys have probability 0, and the output of padded queries is dropped. ``index_select`` cannot know that and
    accumulates row by row, which took a quarter of a training step.
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


class _TakeDistinct(torch.autograd.Function):
    """``x[back]``, where no row is taken twice: the gradient is a copy, 0 at rows that ``back`` leaves out."""

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


@lru_cache(maxsize=256)
@torch.inference_mode(False)  # training may reuse what an evaluation put in the cache, and must be able to save it
def buckets(lengths: tuple[int, ...]) -> Buckets:
    """Group the sequences of a packed batch by length; on the CPU. All layers share the result."""
    return _lay_out(_groups(lengths), lengths)


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def query_buckets(lengths: tuple[int, ...], num_queries: tuple[int, ...]) -> Buckets:
    """The groups of :func:`buckets`, for ``num_queries`` rows of each sequence instead of all its tokens."""
    return _lay_out(_groups(lengths), num_queries)


def _groups(lengths: tuple[int, ...]) -> list[list[int]]:
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    groups: list[list[int]] = []
    for b in order:
        shortest = lengths[groups[-1][0]] if groups else 0
        if groups and lengths[b] <= shortest + 8 + shortest // 8:  # padding to it costs less than another call
            groups[-1].append(b)
        else:
            groups.append([b])
    return sorted(map(sorted, groups))


def _lay_out(groups: list[list[int]], lengths: tuple[int, ...]) -> Buckets:
    starts = Layout(lengths).boundaries
    each, rows, real = [], [], []
    for group in groups:
        shape = (len(group), max(lengths[b] for b in group))
        first_b1 = torch.tensor([[starts[b]] for b in group])
        length_b1 = torch.tensor([[lengths[b]] for b in group])
        column_1s = torch.arange(shape[1])[None, :]
        real_bs = column_1s < length_b1
        mask = None
        if not real_bs.all():
            mask = torch.zeros(real_bs.shape).masked_fill_(~real_bs, -torch.inf)[:, None, None, :]
        each.append(Bucket(shape, mask))
        rows.append(torch.where(real_bs, first_b1 + column_1s, first_b1).flatten())
        real.append(real_bs.flatten())
    rows_P, places_T = torch.cat(rows), torch.cat(real).nonzero().squeeze(1)
    if torch.equal(rows_P, torch.arange(len(rows_P))):
        return Buckets(tuple(each), None, None)
    back_T = torch.empty_like(places_T)
    back_T[rows_P[places_T]] = places_T
    return Buckets(tuple(each), rows_P, back_T)


def buckets_on(lengths: tuple[int, ...], device: torch.device) -> Buckets:
    """:func:`buckets` on a device, where it is copied once a batch, not once a layer."""
    return buckets(lengths) if device.type == "cpu" else _moved_buckets(lengths, device)


@lru_cache(maxsize=8)
@torch.inference_mode(False)
def _moved_buckets(lengths: tuple[int, ...], device: torch.device) -> Buckets:
    return buckets(lengths).to(device)


def attend_bucketed(
    qkv_T3NH: Tensor,
    layout: Layout,
    p: float,
    rows: ChosenRows | None = None,
    *,
    bias_ND: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Attention as batched products over sequences of similar length; on every device and type, with dropout.

    Filling up the buckets costs attention only, a few per cent of the work at usual lengths; the linear layers see real
    tokens alone. See :data:`bertkit.model.attention.Kernel` for the arguments.

    bias_ND: what is added to a score for the distance of its key from its query, ``(N or 1, 2S - 1)``: column
        ``S - 1`` is for distance 0, the next one for the key after the query; S is at least that of the layout.
    scale: what scores are multiplied with before; None: ``1 / sqrt(H)``.
    """
    keys = buckets_on(layout.attended, qkv_T3NH.device)
    place_Q = None
    if rows is None:
        queries = keys
        q_QNH, k_PNH, v_PNH = keys.gather(qkv_T3NH).unbind(1)
    else:
        queries = query_buckets(layout.attended, rows.lengths).to(qkv_T3NH.device)
        chosen_RNH: Tensor = _TakeDistinct.apply(qkv_T3NH[:, 0], rows.rows)
        q_QNH = queries.gather(chosen_RNH)
        k_PNH, v_PNH = keys.gather(qkv_T3NH[:, 1:]).unbind(1)
        if bias_ND is not None:
            starts_B = layout.first_rows(rows.rows.device)
            counts_B = torch.tensor(rows.lengths, device=starts_B.device)
            starts_R = starts_B.repeat_interleave(
                counts_B, output_size=len(rows.rows)
            )  # known, so nothing waits for it
            place_Q = queries.gather(rows.rows - starts_R)
    shares = zip(queries.split(q_QNH), keys.split(k_PNH), keys.split(v_PNH), keys.each, strict=True)
    each_place = [None] * len(keys.each) if place_Q is None else queries.split(place_Q)
    parts = [
        _attend_bucket(*share, p, _bias_of(bias_ND, share[3].shape, place), scale)
        for share, place in zip(shares, each_place, strict=True)
    ]
    return queries.restore(torch.cat(parts) if len(parts) > 1 else parts[0])


def _bias_of(bias_ND: Tensor | None, shape: tuple[int, int], place_Q: Tensor | None) -> Tensor | None:
    """The bias of a bucket's scores, ``(N, s, s)``, or ``(b, N, q, s)`` for queries at these places only."""
    if bias_ND is None:
        return None
    middle, width = bias_ND.shape[1] // 2, shape[1]
    # Windows of width s from the farthest query on: row i is for the query at s - 1 - i.
    windows_Nss: Tensor = bias_ND[:, middle - width + 1 : middle + width].unfold(1, width, 1)
    if place_Q is None:
        return windows_Nss.flip(1)
    rows_NQs: Tensor = windows_Nss[:, width - 1 - place_Q]
    rows_NbqS: Tensor = rows_NQs.unflatten(1, (shape[0], -1))
    return rows_NbqS.transpose(0, 1)


def _attend_bucket(
    q: Tensor, k: Tensor, v: Tensor, bucket: Bucket, p: float, bias: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """Keys and values ``(b * s, N, H)``, queries the same or fewer, ``(b * q, N, H)``; out as the queries."""
    q_bNqH, k_bNsH, v_bNsH = (x.unflatten(0, (bucket.shape[0], -1)).transpose(1, 2) for x in (q, k, v))
    mask = None if bucket.mask is None else bucket.mask.to(q.dtype)
    if bias is not None:
        mask = bias.to(q.dtype) if mask is None else bias.to(q.dtype) + mask
    # The fused kernels of a GPU drop probabilities themselves; a CPU's have no dropout worth the name.
    if q.is_cuda or (p == 0.0 and (q.device.type != "cpu" or k_bNsH.shape[2] > MAX_PLAIN_KEYS.get(q.dtype, 0))):
        out_bNqH = attend_fused(q_bNqH, k_bNsH, v_bNsH, mask, p, scale)
    else:
        scaled_bNqH = q_bNqH / math.sqrt(q.shape[-1]) if scale is None else q_bNqH * scale
        scores_bNqs = scaled_bNqH @ k_bNsH.mT
        probs_bNqs = probabilities(scores_bNqs if mask is None else scores_bNqs + mask)
        out_bNqH = dropout(probs_bNqs, p) @ v_bNsH
    return out_bNqH.transpose(1, 2).flatten(0, 1)


def attend_fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, scale: float | None = None) -> Tensor:
    """Torch's fused attention, ``(b, N, q, H)``, by any kernel but cuDNN's: that one makes a plan for every new shape.

    Batches of texts have a new shape nearly every time, and plans took most of the time of a run.
    """
    if not (q.is_cuda and torch.backends.cuda.cudnn_sdp_enabled()):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p, scale=scale)
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p, scale=scale)
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


def probabilities(scores: Tensor) -> Tensor:
    """Softmax over the last axis; on a CPU, rows are filled up to a register for it."""
    missing = _REGISTER - scores.shape[-1]
    if missing <= 0 or scores.device.type != "cpu":
        return scores.softmax(dim=-1)
    return F.pad(scores, (0, missing), value=-math.inf).softmax(dim=-1)[..., :-missing]
