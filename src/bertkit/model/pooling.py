"""From token vectors to one vector of each sequence: the mean and its kin. [CLS] with a layer on it is a head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bertkit.batch import Layout
from bertkit.config.sentence_config import PoolingMode


def pool_tokens(x_TD: Tensor, layout: Layout, mode: str, skipped: int = 0) -> Tensor:
    """Token vectors to one vector of each sequence, [CLS] and [SEP] included, ``(B, D)``.

    Modes as in sentence-transformers (Reimers & Gurevych 2019, section 3): ``cls`` the first token, ``lasttoken`` the
    last, ``max`` and ``mean`` over all, ``mean_sqrt_len_tokens`` the sum over the root of their number,
    ``weightedmean`` by position, counted from 1 (Muennighoff 2022). ``skipped``: first tokens of each sequence that are
    left out, their positions counted; no sequence is as short.

    A CPU computes one sequence after the other. On another device that would be a kernel or more a sequence, so there
    it is :func:`pool_segments`.
    """
    if x_TD.device.type != "cpu":
        return pool_segments(x_TD, layout, mode, skipped)
    sequences = x_TD.split(layout.lengths)
    if skipped:
        sequences = tuple(x_SD[skipped:] for x_SD in sequences)
    return torch.stack([_POOL[mode](x_SD, skipped) for x_SD in sequences])


def pool_sentences(x_TD: Tensor, layout: Layout, modes: Sequence[PoolingMode], skipped: int = 0) -> Tensor:
    """What each mode of :func:`pool_tokens` gives, side by side: ``(B, D * modes)``."""
    return torch.cat([pool_tokens(x_TD, layout, mode, skipped) for mode in modes], dim=1)


def pool_segments(x_TD: Tensor, layout: Layout, mode: str, skipped: int = 0) -> Tensor:
    """:func:`pool_tokens` by a fixed number of kernels, however many sequences there are.

    Sums are in float32 at least. Nothing is read back from the device.
    """
    device, dtype = x_TD.device, x_TD.dtype
    lengths_B = layout.lengths_on(device)
    ends_B = lengths_B.cumsum(0)
    if mode in ("cls", "lasttoken"):
        return x_TD.index_select(0, ends_B - lengths_B + skipped if mode == "cls" else ends_B - 1)
    sizes_B = lengths_B - skipped
    x_TD = x_TD.to(torch.promote_types(dtype, torch.float32))
    if skipped or mode == "weightedmean":
        count = layout.num_tokens - skipped * layout.num_sequences
        own_T = torch.arange(count, device=device) - _spread(sizes_B.cumsum(0) - sizes_B, sizes_B, count)
        x_TD = x_TD.index_select(0, own_T + _spread(ends_B - sizes_B, sizes_B, count))
        if mode == "weightedmean":
            x_TD = x_TD * (own_T + 1 + skipped).unsqueeze(1)
    # Lengths that are checked are read back.
    found_BD = torch.segment_reduce(x_TD, "max" if mode == "max" else "sum", lengths=sizes_B, unsafe=True)
    if mode != "max":
        found_BD = found_BD / _DIVISORS[mode](sizes_B, skipped).unsqueeze(1)
    return found_BD.to(dtype)


def _spread(values_B: Tensor, sizes_B: Tensor, count: int) -> Tensor:
    """The value of each sequence at each of its tokens; ``count``: of all of them, so that no device has to say it."""
    return values_B.repeat_interleave(sizes_B, output_size=count)


def _by_position(x_SD: Tensor, skipped: int) -> Tensor:
    weights_S = torch.arange(1 + skipped, 1 + skipped + len(x_SD), dtype=torch.float32, device=x_SD.device)
    return (weights_S / weights_S.sum()).to(x_SD.dtype) @ x_SD


_POOL: dict[str, Callable[[Tensor, int], Tensor]] = {
    "cls": lambda x_SD, skipped: x_SD[0],
    "max": lambda x_SD, skipped: x_SD.amax(dim=0),
    "mean": lambda x_SD, skipped: x_SD.mean(dim=0),
    "mean_sqrt_len_tokens": lambda x_SD, skipped: x_SD.sum(dim=0) / len(x_SD) ** 0.5,
    "weightedmean": _by_position,
    "lasttoken": lambda x_SD, skipped: x_SD[-1],
}
#: What sums are divided by, from the numbers of tokens that are pooled.
_DIVISORS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "mean": lambda sizes_B, skipped: sizes_B,
    "mean_sqrt_len_tokens": lambda sizes_B, skipped: sizes_B.sqrt(),
    "weightedmean": lambda sizes_B, skipped: sizes_B * (sizes_B + 1 + 2 * skipped) / 2,
}
