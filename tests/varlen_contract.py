"""What the variable-length kernel of a GPU computes, written plainly."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch.nn import functional as F


def by_contract(q, k, v, queries, keys, p, scale, window=(-1, -1)):
    """What FlashAttention computes, sequence by sequence; rejects what it rejects."""
    left, right = window
    for x, each in ((q, queries), (k, keys), (v, keys)):
        assert x.stride(-1) == 1
        assert x.shape[-1] % 8 == 0
        assert each.boundaries.dtype == torch.int32
        assert each.boundaries.is_contiguous()
        assert (each.boundaries[0], each.boundaries[-1]) == (0, len(x))
        assert each.boundaries.diff().max() <= each.longest
    parts = []
    each = zip(pairwise(queries.boundaries.tolist()), pairwise(keys.boundaries.tolist()), strict=True)
    for (start_q, end_q), (start_k, end_k) in each:
        own = (x.transpose(0, 1) for x in (q[start_q:end_q], k[start_k:end_k], v[start_k:end_k]))
        mask = None
        if max(left, right) >= 0:
            size = end_k - start_k
            away = torch.arange(size)[None] - torch.arange(end_q - start_q)[:, None]
            mask = (away >= (-left if left >= 0 else -size)) & (away <= right)
        part = F.scaled_dot_product_attention(*own, attn_mask=mask, dropout_p=p, scale=scale)
        parts.append(part.transpose(0, 1))
    return torch.cat(parts)
