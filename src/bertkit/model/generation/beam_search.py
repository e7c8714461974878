"""Beam search: of each input the K best beginnings are continued together.

The rules are those of transformers 5, whose outputs these equal. Of the continuations of K beams the best 2 K are
looked at, so that K are left that do not end. One of the first K that ends is *finished*; of those the best K are kept,
by their score divided by a power of their length. An input is done when no better one is likely, and leaves the batch.

Axes, in the order of the suffix letters::

    B inputs   K beams   C candidates, 2 K   L tokens, the given one first   V words
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.config.generation_settings import GenerationSettings
from bertkit.model.generation.decoder_cache import DecoderCache
from bertkit.model.generation.one_by_one import Step
from bertkit.model.generation.score_rules import adjusted

#: Stands for "no": added to the score of what must not be chosen. Not -inf, so that it can be divided and compared.
NEVER = -1e9
#: In place of a token that was not written: padding is a token that a model may write.
EMPTY = -1


@dataclass(slots=True)
class Beams:
    """K sequences of each input, the best first.

    tokens: int64 ``(B, K, L)``. scores: float32 ``(B, K)``. there: bool ``(B, K)``, whether there is such a one.
    """

    tokens: Tensor
    scores: Tensor
    there: Tensor

    def chosen(self, places_BK: Tensor) -> Beams:
        """These of each input."""
        tokens = self.tokens.gather(1, places_BK[:, :, None].expand(-1, -1, self.tokens.shape[2]))
        return Beams(tokens, self.scores.gather(1, places_BK), self.there.gather(1, places_BK))

    def of(self, inputs: Tensor) -> Beams:
        """Those of some inputs."""
        return Beams(self.tokens[inputs], self.scores[inputs], self.there[inputs])


def write_beams(
    step: Step,
    cache: DecoderCache,
    config: EncoderDecoderConfig,
    settings: GenerationSettings,
    generator: torch.Generator | None,
) -> Tensor:
    """The best ``num_return_sequences`` of each input, int64 ``(B, returned, L)``; :data:`EMPTY` behind their ends."""
    device, inputs, beams = cache.device, cache.num_inputs, settings.num_beams
    tokens = torch.full((inputs, beams, settings.longest), EMPTY, dtype=torch.int64, device=device)
    tokens[:, :, 0] = config.decoder_start_token_id
    scores = torch.full((inputs, beams), NEVER, device=device)
    running = Beams(tokens, scores.clone(), torch.ones_like(scores, dtype=torch.bool))
    running.scores[:, 0] = 0.0  # all beams begin alike: the others count from the first token on
    finished = Beams(tokens.clone(), scores, torch.zeros_like(running.there))
    result = tokens[:, : settings.num_return_sequences].clone()
    left_B = torch.arange(inputs, device=device)
    for length in range(1, settings.longest):
        candidates, origins_BC, ends_BC = _candidates(step, cache, running, length, config, settings, generator)
        places_BK = (candidates.scores + NEVER * ends_BC).topk(beams).indices
        finished = _with_new(finished, candidates, ends_BC, length, settings)
        running = candidates.chosen(places_BK)
        running.scores = running.scores + NEVER * ends_BC.gather(1, places_BK)
        done_B = _done(running, finished, length, settings)
        result[left_B[done_B]] = finished.tokens[done_B, : settings.num_return_sequences]
        if bool(done_B.all()):
            break
        offsets_B1 = torch.arange(len(left_B), device=device)[:, None] * beams
        cache.reorder((origins_BC.gather(1, places_BK) + offsets_B1)[~done_B].flatten())
        if bool(done_B.any()):
            kept = (~done_B).nonzero().squeeze(1)
            cache.select(kept)
            left_B, running, finished = left_B[kept], running.of(kept), finished.of(kept)
    return result


def _candidates(
    step: Step,
    cache: DecoderCache,
    running: Beams,
    length: int,
    config: EncoderDecoderConfig,
    settings: GenerationSettings,
    generator: torch.Generator | None,
) -> tuple[Beams, Tensor, Tensor]:
    """The best continuations of each input; the beams that they continue and whether they end, each ``(B, C)``."""
    inputs, beams = running.scores.shape
    so_far = running.tokens[:, :, :length].flatten(0, 1)
    log_probs = step(so_far[:, -1:], cache).float().log_softmax(dim=-1)
    log_probs = adjusted(log_probs, so_far, config.eos_token_id, settings).view(inputs, beams, -1)
    words = log_probs.shape[-1]
    totals = (log_probs + running.scores[:, :, None]).flatten(1)
    if settings.do_sample:
        places_BC = torch.multinomial(totals.softmax(dim=-1), 2 * beams, generator=generator)
        scores_BC = totals.gather(1, places_BC)
    else:
        scores_BC, places_BC = totals.topk(2 * beams)
    origins_BC, next_BC = places_BC // words, places_BC % words
    found = running.chosen(origins_BC)
    found.tokens[:, :, length] = next_BC
    ends_BC = (next_BC == config.eos_token_id) | (length + 1 == settings.longest)
    return Beams(found.tokens, scores_BC, found.there), origins_BC, ends_BC


def _with_new(finished: Beams, candidates: Beams, ends_BC: Tensor, length: int, settings: GenerationSettings) -> Beams:
    """The best K of those that were finished before and those that are now."""
    first_C = torch.arange(ends_BC.shape[1], device=ends_BC.device) < settings.num_beams
    new_BC = ends_BC & first_C
    scores_BC = candidates.scores / length**settings.length_penalty
    both = Beams(
        torch.cat([finished.tokens, candidates.tokens], dim=1),
        torch.cat([finished.scores, scores_BC + NEVER * ~new_BC], dim=1),
        torch.cat([finished.there, new_BC], dim=1),
    )
    return both.chosen(both.scores.topk(settings.num_beams).indices)


def _done(running: Beams, finished: Beams, length: int, settings: GenerationSettings) -> Tensor:
    """Inputs whose K finished sequences stay as they are, ``(B,)``."""
    if length + 1 == settings.longest:
        return torch.ones(len(running.scores), dtype=torch.bool, device=running.scores.device)
    full_B = finished.there.all(dim=1)
    if settings.early_stopping is True:
        return full_B
    # The best that a running beam may still become, taken to be as long as now; or with "never" as long as possible.
    grows = settings.early_stopping == "never" and settings.length_penalty > 0.0
    best_B = running.scores[:, 0] / (settings.longest - 1 if grows else length) ** settings.length_penalty
    settled_B: Tensor = best_B <= finished.scores.amin(dim=1)
    return full_B & settled_B
