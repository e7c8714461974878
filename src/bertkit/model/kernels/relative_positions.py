"""Which row of a table of relative positions stands for a distance; both schemes put far distances into wider rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def t5_buckets(distances: Tensor, num_buckets: int, max_distance: int, *, bidirectional: bool) -> Tensor:
    """Rows of the table of T5 (Raffel et al. 2020, section 2.1; MPNet has the same): int64, shaped as ``distances``.

    ``distances`` are int64, position of the key minus that of the query. Half of the rows are for single distances, the
    others grow logarithmically up to ``max_distance``, whose row all farther ones share. If ``bidirectional``, the
    upper half of the table is for keys after the query; otherwise these share row 0 with distance 0.
    """
    num_rows = num_buckets
    first = torch.zeros_like(distances)
    if bidirectional:
        num_rows //= 2
        first = num_rows * (distances > 0).long()
        away = distances.abs()
    else:
        away = (-distances).clamp(min=0)
    single = num_rows // 2
    # In float32, as everywhere: the rounding of a logarithm at the edge of a row decides which row it is.
    steps = torch.log(away.clamp(min=1).float() / single) / math.log(max_distance / single) * (num_rows - single)
    wide = (single + steps.long()).clamp(max=num_rows - 1)
    return first + torch.where(away < single, away, wide)


def square_bias(bias_ND: Tensor, tokens: int) -> Tensor:
    """The biases of all pairs of ``tokens`` tokens, ``(N, s, s)``, from those of the distances, ``(N, 2S - 1)``."""
    place_s = torch.arange(tokens, device=bias_ND.device)
    return bias_ND[:, place_s[None, :] - place_s[:, None] + bias_ND.shape[1] // 2]


def log_buckets(distances: Tensor, num_buckets: int, max_distance: int) -> Tensor:
    """Signed rows of the table of DeBERTa (He et al. 2021, appendix; its code ``make_log_bucket_position``).

    ``distances`` are int64, position of the query minus that of the key. Up to ``num_buckets // 2`` they are their own
    row, from there on rows grow logarithmically, up to ``num_buckets - 1`` at ``max_distance - 1``.
    """
    middle = num_buckets // 2
    away = distances.abs().clamp(min=middle - 1)
    # As there: torch's float32, both logarithms of tensors.
    steps = torch.log(away / middle) / torch.log(torch.tensor((max_distance - 1) / middle)) * (middle - 1)
    wide = (torch.ceil(steps) + middle).long() * distances.sign()
    return torch.where(distances.abs() <= middle, distances, wide)
