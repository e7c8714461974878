"""Vectors of many texts with gradients, in the memory of a few: a batch of any size for losses that compare its rows.

Gao et al. 2021, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup" (GradCache).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bertkit.batch import Batch, split_by_budget


def vectors_in_parts(encode: Callable[[Batch], Tensor], texts: Batch, max_tokens: int) -> Tensor:
    """What ``encode`` makes of a batch, ``(B, D)``, in parts of at most ``max_tokens`` tokens, or of one longer text.

    Where there are several parts, each is computed without a graph, and again, with the same dropout, when the gradient
    of its vectors has arrived: the gradients of the whole batch, in the memory of one part, for one more forward pass.
    """
    lengths = texts.layout.lengths
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    parts = split_by_budget(order, lengths, max_tokens)
    if len(parts) == 1:
        return encode(texts)
    vectors = torch.cat([_computed_twice(encode, texts.select(part)) for part in parts])
    return vectors.index_select(0, torch.tensor(order, device=vectors.device).argsort())


def _computed_twice(encode: Callable[[Batch], Tensor], part: Batch) -> Tensor:
    if not torch.is_grad_enabled():
        return encode(part)
    # The parameters are no arguments, so that something else must ask for a gradient; on the device whose generator is
    # to be replayed.
    asks = torch.zeros((), requires_grad=True, device=part.input_ids.device)
    found: Tensor = checkpoint(lambda _: encode(part), asks, use_reentrant=True, preserve_rng_state=True)
    return found
