"""From the encoder's output to written tokens: chooses how to search, and puts the rows together."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.config.generation_settings import GenerationSettings
from bertkit.errors import InputError
from bertkit.model.generation.beam_search import EMPTY, write_beams
from bertkit.model.generation.decoder_cache import DecoderCache
from bertkit.model.generation.one_by_one import Step, write_one_by_one


def written(
    step: Step, cache: DecoderCache, config: EncoderDecoderConfig, settings: GenerationSettings, seed: int | None
) -> Tensor:
    """The tokens for each input, int64 ``(B * num_return_sequences, length)``: the given one first, padding behind."""
    if settings.num_beams > 1:
        rows = write_beams(step, cache, config, settings, generator_of(seed, cache)).flatten(0, 1)
        length = int((rows != EMPTY).sum(dim=1).amax())
        return rows[:, :length].masked_fill(rows[:, :length] == EMPTY, config.pad_token_id)
    tokens = list(streamed(step, cache, config, settings, seed))
    start = torch.full_like(tokens[0], config.decoder_start_token_id)
    return torch.stack([start, *tokens], dim=1)


def streamed(
    step: Step, cache: DecoderCache, config: EncoderDecoderConfig, settings: GenerationSettings, seed: int | None
) -> Iterator[Tensor]:
    """The same token by token, each int64 ``(B * num_return_sequences,)``; not with beams."""
    if settings.num_beams > 1:
        raise InputError(
            f"a beam search (num_beams={settings.num_beams}) cannot be streamed: its first token is known only at "
            "the end; use 1"
        )
    if settings.num_return_sequences > 1:
        inputs = torch.arange(cache.num_inputs, device=cache.device)
        cache.select(inputs.repeat_interleave(settings.num_return_sequences))
    return write_one_by_one(step, cache, config, settings, generator_of(seed, cache))


def generator_of(seed: int | None, cache: DecoderCache) -> torch.Generator | None:
    """A generator for a seed on the device of the cache; None: torch's own."""
    return None if seed is None else torch.Generator(cache.device).manual_seed(seed)
