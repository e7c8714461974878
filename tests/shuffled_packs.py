"""Packs in another order, and their rows too: what comes out of the engine must not depend on either."""

from __future__ import annotations

import numpy as np
import pytest

from bertkit.engine import inference_engine, text_generator
from bertkit.engine.rows import pack_by_length


def shuffled(lengths: np.ndarray, max_tokens: int, workers: int = 1) -> list[list[int]]:
    """The same packs as the engine makes, by lot."""
    chance = np.random.default_rng(len(lengths))
    packs = pack_by_length(lengths, max_tokens, workers)
    return [chance.permutation(packs[place]).tolist() for place in chance.permutation(len(packs))]


def shuffle_packs(patch: pytest.MonkeyPatch) -> None:
    for module in (inference_engine, text_generator):
        patch.setattr(module, "pack_by_length", shuffled)
