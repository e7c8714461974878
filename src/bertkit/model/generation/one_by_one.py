"""Greedy search and sampling: each row is written by itself, and leaves the batch when it is finished.

Axes, in the order of the suffix letters::

    R rows that are written   A those of them that are not finished   L tokens, the given one first   V words
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.config.generation_settings import GenerationSettings
from bertkit.model.generation.decoder_cache import DecoderCache
from bertkit.model.generation.score_rules import adjusted

#: ``(ids, cache) -> logits``: the next token of each row, int64 ``(A, 1)``, added to the cache; to ``(A, V)``.
Step = Callable[[Tensor, DecoderCache], Tensor]
#: Finished rows leave the batch when they are this share of it: leaving copies the cache.
SHARE_TO_DROP = 1 / 8


def write_one_by_one(
    step: Step,
    cache: DecoderCache,
    config: EncoderDecoderConfig,
    settings: GenerationSettings,
    generator: torch.Generator | None,
) -> Iterator[Tensor]:
    """The next token of each row, int64 ``(R,)``, until all are finished; padding for those that are."""
    device = cache.device
    rows = cache.num_inputs
    written_RL = torch.full((rows, settings.longest), config.pad_token_id, dtype=torch.int64, device=device)
    written_RL[:, 0] = config.decoder_start_token_id
    alive_A = torch.arange(rows, device=device)
    open_A = torch.ones(rows, dtype=torch.bool, device=device)
    for length in range(1, settings.longest):
        so_far_AL = written_RL[alive_A, :length]
        logits_AV = step(so_far_AL[:, -1:], cache).float()
        scores_AV = adjusted(logits_AV, so_far_AL, config.eos_token_id, settings)
        if settings.do_sample:
            token_A = torch.multinomial(scores_AV.softmax(dim=-1), 1, generator=generator).squeeze(1)
        else:
            token_A = scores_AV.argmax(dim=-1)
        token_A = token_A.masked_fill(~open_A, config.pad_token_id)
        written_RL[alive_A, length] = token_A
        yield written_RL[:, length].clone()
        open_A = open_A & (token_A != config.eos_token_id)
        num_open = int(open_A.sum())
        if num_open == 0:
            return
        if num_open <= (1 - SHARE_TO_DROP) * len(open_A):
            kept = open_A.nonzero().squeeze(1)
            cache.reorder(kept)
            cache.select(kept)
            alive_A, open_A = alive_A[kept], open_A[kept]
