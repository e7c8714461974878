"""Attention to the tokens in a window around each: long texts in blocks, in memory that grows with their length only.

Axes, in the order of the suffix letters::

    T tokens of the batch, flat   R chosen rows   N heads   H width of one head
    b blocks   q queries of a block   k its keys: those of the block and of half a window on each side
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from bertkit.batch import Layout
from bertkit.model.kernels.bucketed_attention import attend_fused
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.dropout import dropout
from bertkit.model.kernels.varlen_attention import attend_packed, attend_varlen, varlen_fits

#: Blocks computed at once: their scores are in memory together.
BLOCKS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Blocks:
    """Long sequences of a packed batch cut into blocks, and the short ones, which a window holds whole.

    short: layout of the short sequences, and the rows of their tokens; None: there are none.
    queries: row of each place of the blocks' queries, int64 ``(b, q)``; behind the end of a sequence its last row.
    keys: the same of the keys, ``(b, k)``.
    mask: float ``(b, 1, q, k)``, 0 at keys in the window, else -inf.
    back: place of each token among the short ones and the blocks' queries, int64 ``(T,)``.
    """

    short: tuple[Layout, Tensor] | None
    queries: Tensor
    keys: Tensor
    mask: Tensor
    back: Tensor


def attend_windowed(qkv_T3NH: Tensor, layout: Layout, p: float, rows: ChosenRows | None = None, *, half: int) -> Tensor:
    """Attention of each token to those at most ``half`` tokens away, itself included, as a ``Kernel``."""
    if layout.longest <= half + 1:
        return attend_packed(qkv_T3NH, layout, p, rows)
    if varlen_fits(qkv_T3NH):
        out_TNH = attend_varlen(qkv_T3NH, layout, p, window=(half, half))
    else:
        out_TNH = _attend_blocks(qkv_T3NH, layout, p, half)
    return out_TNH if rows is None else out_TNH.index_select(0, rows.rows)


def outside_window(query_places: Tensor, key_places: Tensor, half: int) -> Tensor:
    """True where a key is more than ``half`` tokens away from a query: ``(..., q, k)``."""
    return (query_places[..., :, None] - key_places[..., None, :]).abs() > half


def _attend_blocks(qkv_T3NH: Tensor, layout: Layout, p: float, half: int) -> Tensor:
    blocks = _blocks_on(layout.attended, half, qkv_T3NH.device)
    parts = []
    if blocks.short is not None:
        short, rows = blocks.short
        parts.append(attend_packed(qkv_T3NH.index_select(0, rows), short, p))
    q_TNH, kv_T2NH = qkv_T3NH[:, 0], qkv_T3NH[:, 1:]
    for start in range(0, len(blocks.queries), BLOCKS_AT_ONCE):
        some = slice(start, start + BLOCKS_AT_ONCE)
        q_bNqH = q_TNH[blocks.queries[some]].transpose(1, 2)
        k_bNkH, v_bNkH = kv_T2NH[blocks.keys[some]].transpose(1, 3).unbind(2)
        mask = blocks.mask[some].to(q_bNqH.dtype)
        if p == 0.0 or q_bNqH.is_cuda:
            out_bNqH = attend_fused(q_bNqH, k_bNkH, v_bNkH, mask, p)
        else:
            scores_bNqk = (q_bNqH / math.sqrt(q_bNqH.shape[-1])) @ k_bNkH.mT + mask
            out_bNqH = dropout(scores_bNqk.softmax(dim=-1), p) @ v_bNkH
        parts.append(out_bNqH.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts).index_select(0, blocks.back)


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # training may reuse what an evaluation put in the cache, and must be able to save it
def _blocks_on(lengths: tuple[int, ...], half: int, device: torch.device) -> Blocks:
    """The blocks of a batch on a device: made once a batch, not once a layer."""
    starts = Layout(lengths).boundaries
    size = half  # of a block: its queries see three times as many keys, of which two thirds are in their windows
    is_long = [length > half + 1 for length in lengths]
    short_rows = [torch.arange(starts[i], starts[i + 1]) for i, long in enumerate(is_long) if not long]
    queries, keys, masks, rows = [], [], [], []
    for i, length in enumerate(lengths):
        if not is_long[i]:
            continue
        first_b1 = torch.arange(0, length, size)[:, None]
        query_bq = first_b1 + torch.arange(size)
        key_bk = first_b1 + torch.arange(-half, size + half)
        hidden = outside_window(query_bq, key_bk, half) | ((key_bk < 0) | (key_bk >= length))[:, None, :]
        # A query behind the end sees everything, so that no row of scores is empty; its result is dropped.
        hidden = hidden & (query_bq < length)[..., None]
        masks.append(torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf)[:, None])
        queries.append(starts[i] + query_bq.clamp(max=length - 1))
        keys.append(starts[i] + key_bk.clamp(0, length - 1))
        rows.append(torch.where(query_bq < length, starts[i] + query_bq, -1).flatten())
    in_order_P = torch.cat([*short_rows, *rows])
    back_T = torch.empty(sum(lengths), dtype=torch.int64)
    places = (in_order_P >= 0).nonzero().squeeze(1)
    back_T[in_order_P[places]] = places
    short = None
    if short_rows:
        short_lengths = tuple(length for length, long in zip(lengths, is_long, strict=True) if not long)
        short = (Layout(short_lengths), torch.cat(short_rows).to(device))
    query_bq, key_bk, mask_b1qk = (torch.cat(each).to(device) for each in (queries, keys, masks))
    return Blocks(short, query_bq, key_bk, mask_b1qk, back_T.to(device))
