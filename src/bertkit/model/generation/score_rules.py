"""What changes the scores of the next token before it is chosen, in the order of transformers.

Axes, in the order of the suffix letters::

    R rows that are written   L tokens written so far, the given one first   V words
"""

from __future__ import annotations

import torch
from torch import Tensor

from bertkit.config.generation_settings import GenerationSettings


def adjusted(scores_RV: Tensor, written_RL: Tensor, eos_token_id: int, settings: GenerationSettings) -> Tensor:
    """The scores (logits, or logarithms of probabilities) as the settings ask for; -inf for what must not be next."""
    length = written_RL.shape[1]
    if settings.repetition_penalty != 1.0:
        scores_RV = _penalized(scores_RV, written_RL, settings.repetition_penalty)
    if settings.no_repeat_ngram_size:
        scores_RV = _without_repeats(scores_RV, written_RL, settings.no_repeat_ngram_size)
    if length - 1 < settings.shortest:
        scores_RV = scores_RV.clone()
        scores_RV[:, eos_token_id] = -torch.inf
    if settings.forced_bos_token_id is not None and length == 1:
        scores_RV = _forced(scores_RV, settings.forced_bos_token_id)
    if settings.forced_eos_token_id is not None and length == settings.longest - 1:
        scores_RV = _forced(scores_RV, settings.forced_eos_token_id)
    return _for_sampling(scores_RV, settings) if settings.do_sample else scores_RV


def _penalized(scores_RV: Tensor, written_RL: Tensor, penalty: float) -> Tensor:
    """Keskar et al. 2019, section 4.1: written tokens become less likely."""
    found_RL = scores_RV.gather(1, written_RL)
    return scores_RV.scatter(1, written_RL, torch.where(found_RL < 0, found_RL * penalty, found_RL / penalty))


def _without_repeats(scores_RV: Tensor, written_RL: Tensor, size: int) -> Tensor:
    """Paulus et al. 2018, section 2.5: a token that would end a run of ``size`` that was written is ruled out."""
    length = written_RL.shape[1]
    if length < size:
        return scores_RV
    runs_RKn = written_RL.unfold(1, size, 1)
    last_R1n = written_RL[:, None, length - size + 1 :]
    again_RK = (runs_RKn[:, :, :-1] == last_R1n).all(dim=-1)
    rows, places = again_RK.nonzero(as_tuple=True)
    scores_RV = scores_RV.clone()
    scores_RV[rows, runs_RKn[rows, places, -1]] = -torch.inf
    return scores_RV


def _forced(scores_RV: Tensor, token: int) -> Tensor:
    forced = torch.full_like(scores_RV, -torch.inf)
    forced[:, token] = 0.0
    return forced


def _for_sampling(scores_RV: Tensor, settings: GenerationSettings) -> Tensor:
    """Temperature, the k most likely (Fan et al. 2018), the most likely with p in all (Holtzman et al. 2020).

    A beam search keeps two at least, for one may be the end.
    """
    fewest = 1 if settings.num_beams == 1 else 2
    if settings.temperature != 1.0:
        scores_RV = scores_RV / settings.temperature
    if settings.top_k:
        kept = min(max(settings.top_k, fewest), scores_RV.shape[1])
        least_R1 = scores_RV.topk(kept).values[:, -1:]
        scores_RV = scores_RV.masked_fill(scores_RV < least_R1, -torch.inf)
    if settings.top_p < 1.0:
        ordered_RV, order_RV = scores_RV.sort(descending=False)
        before_RV = ordered_RV.softmax(dim=-1).cumsum(dim=-1)
        dropped_RV = before_RV <= 1.0 - settings.top_p
        dropped_RV[:, -fewest:] = False
        scores_RV = scores_RV.masked_fill(dropped_RV.scatter(1, order_RV, dropped_RV), -torch.inf)
    return scores_RV
