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
    """
    sequences = x_TD.split(layout.lengths)
    if skipped:
        sequences = tuple(x_SD[skipped:] for x_SD in sequences)
    return torch.stack([_POOL[mode](x_SD, skipped) for x_SD in sequences])


def pool_sentences(x_TD: Tensor, layout: Layout, modes: Sequence[PoolingMode], skipped: int = 0) -> Tensor:
    """What each mode of :func:`pool_tokens` gives, side by side: ``(B, D * modes)``."""
    return torch.cat([pool_tokens(x_TD, layout, mode, skipped) for mode in modes], dim=1)


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
