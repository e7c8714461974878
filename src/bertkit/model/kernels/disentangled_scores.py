"""Attention whose scores also depend on vectors of distances, over a packed batch in buckets of similar length.

A score needs the product of a query and the vector of its distance to the key. For short texts these products are made
for all distances there are, one behind the other, and read along the diagonals; for long ones, for the rows of the
table, and gathered.

Axes, in the order of the suffix letters::

    T tokens of the batch, flat   R chosen rows   N heads   H width of one head   E rows of the table of distances
    b sequences of one bucket   s longest sequence of a bucket   n some of the heads
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bertkit.batch import Layout
from bertkit.model.kernels.bucketed_attention import Bucket, buckets_on, probabilities
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.dropout import dropout

#: Scores computed at once: 16 MB in float32.
MAX_SCORES = 1 << 22


@dataclass(frozen=True, slots=True)
class Distances:
    """What attention knows of distances.

    keys: made of their vectors, ``(E, N, H)``, for queries of the content; None: these do not attend to positions.
    queries: the same for keys of the content, ``(E, N, H)``, or None.
    scale: what all scores are multiplied with.
    rows: the row of a table for distances, query minus key.
    """

    keys: Tensor | None
    queries: Tensor | None
    scale: float
    rows: Callable[[Tensor], Tensor]


def attend_disentangled(
    qkv_T3NH: Tensor, layout: Layout, p: float, rows: ChosenRows | None, distances: Distances
) -> Tensor:
    """As a :data:`bertkit.model.attention.Kernel`; all rows are computed, because few of them would cost as much."""
    grouped = buckets_on(layout.lengths, qkv_T3NH.device)
    shares = zip(grouped.split(grouped.gather(qkv_T3NH)), grouped.each, strict=True)
    parts = [_attend_bucket(qkv, bucket, p, distances) for qkv, bucket in shares]
    out_TNH = grouped.restore(torch.cat(parts) if len(parts) > 1 else parts[0])
    return out_TNH if rows is None else out_TNH.index_select(0, rows.rows)


def _attend_bucket(qkv: Tensor, bucket: Bucket, p: float, distances: Distances) -> Tensor:
    """``(b * s, 3, N, H)`` to ``(b * s, N, H)``, some sequences or some heads at a time."""
    (num, size), num_heads = bucket.shape, qkv.shape[2]
    heads = max(1, min(num_heads, MAX_SCORES // size**2))
    rows = max(1, MAX_SCORES // (size**2 * heads)) if heads == num_heads else 1
    whole_b3NsH = qkv.unflatten(0, bucket.shape).permute(0, 2, 3, 1, 4)
    out = []
    for first in range(0, num, rows):
        some = slice(first, first + rows)
        mask = None if bucket.mask is None else bucket.mask[some].to(qkv.dtype)
        parts = []
        for head in range(0, num_heads, heads):
            those = slice(head, head + heads)
            q_bnsH, k_bnsH, v_bnsH = whole_b3NsH[some, :, those].unbind(1)
            scores_bnss = _scores(q_bnsH, k_bnsH, distances, those)
            probs_bnss = probabilities(scores_bnss if mask is None else scores_bnss + mask)
            parts.append(dropout(probs_bnss, p) @ v_bnsH)
        out.append(torch.cat(parts, dim=1) if len(parts) > 1 else parts[0])
    out_bNsH = torch.cat(out) if len(out) > 1 else out[0]
    return out_bNsH.transpose(1, 2).flatten(0, 1)


def disentangled_probabilities(qkv_s3NH: Tensor, distances: Distances) -> Tensor:
    """Probabilities of one sequence, ``(N, s, s)``."""
    q_NsH, k_NsH, _ = (x.transpose(0, 1)[None] for x in qkv_s3NH.unbind(1))
    return _scores(q_NsH, k_NsH, distances, slice(None)).softmax(dim=-1)[0]


def _scores(q_bnsH: Tensor, k_bnsH: Tensor, distances: Distances, heads: slice) -> Tensor:
    """Scaled scores of all pairs, ``(b, n, s, s)``, queries first."""
    size = q_bnsH.shape[2]
    away = torch.arange(1 - size, size, device=q_bnsH.device)
    q_bnsH = q_bnsH * distances.scale
    scores_bnss = q_bnsH @ k_bnsH.mT
    if distances.keys is not None:
        scores_bnss = scores_bnss + _along(q_bnsH, distances.keys[:, heads], distances.rows(-away))
    if distances.queries is not None:
        scaled_bnsH = k_bnsH * distances.scale
        scores_bnss = scores_bnss + _along(scaled_bnsH, distances.queries[:, heads], distances.rows(away)).mT
    return scores_bnss


def _along(x_bnsH: Tensor, vectors_EnH: Tensor, rows: Tensor) -> Tensor:
    """``out[i, j] = x[i] . vectors[rows[j - i + s - 1]]``, ``(b, n, s, s)``; ``rows`` has ``2s - 1`` entries."""
    size = x_bnsH.shape[2]
    if len(rows) <= 2 * len(vectors_EnH):
        return read_diagonals(x_bnsH @ vectors_EnH[rows].permute(1, 2, 0))
    products_bnsE = x_bnsH @ vectors_EnH.permute(1, 2, 0)
    place_s = torch.arange(size, device=rows.device)
    index_ss = rows[place_s[None, :] - place_s[:, None] + size - 1]
    return products_bnsE.gather(-1, index_ss.expand(*products_bnsE.shape[:2], -1, -1))


def read_diagonals(x: Tensor) -> Tensor:
    """``out[..., i, j] = x[..., i, j - i + s - 1]``: ``(..., s, 2s - 1)`` to ``(..., s, s)``, a view where it can be.

    In memory, row i begins one number further to the left in each line of ``2s - 2``.
    """
    size = x.shape[-2]
    if size == 1:
        return x
    flat = x.flatten(-2)[..., size - 1 : size - 1 + size * (2 * size - 2)]
    along: Tensor = flat.unflatten(-1, (size, 2 * size - 2))[..., :size]
    return along
