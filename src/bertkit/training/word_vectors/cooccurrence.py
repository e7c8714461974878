"""Vectors computed from co-occurrence counts.

The counts of pairs within a window, weighted by distance, become positive pointwise mutual information with smoothed
contexts, and a truncated SVD of that matrix gives the vectors (Levy & Goldberg 2014; Levy, Goldberg & Dagan 2015, with
their settings: contexts to the power of 0.75, square roots of the singular values). Deviations: contexts are the most
frequent tokens only, as many as memory allows; the SVD is randomized (Halko et al. 2011); the mean is subtracted and
every vector has length 1.

Letters of the array shapes: V tokens, C contexts, D width, T tokens of a part.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from bertkit.ragged import Floats, Ints
from bertkit.training.trainer.generators import seeded

#: Maximum distance between the two tokens of a pair; a pair at distance d counts 1 / d.
WINDOW = 8
#: Maximum entries of the pair table, 4 bytes each: all pairs of a vocabulary of 11,585.
MAX_ENTRIES = 1 << 27
_SMOOTHING = 0.75
#: Extra dimensions and power iterations of the randomized SVD.
_OVERSAMPLING, _ROUNDS = 24, 3
#: Rows of the pair table processed at a time.
_BLOCK = 1024


def vectors_of_pairs(pairs_VC: Floats, size: int, *, seed: int = 0) -> Floats:
    """A vector of length 1 for every token, float32 ``(V, D)``, D at most ``size``; overwrites the counts.

    The same everywhere up to rounding; tokens without a pair get zeros.
    """
    seen_V = pairs_VC.sum(1) > 0
    size = min(size, *pairs_VC.shape)
    _to_information(pairs_VC)
    with seeded(seed), torch.inference_mode():
        wanted = min(size + _OVERSAMPLING, *pairs_VC.shape)
        left_VD, singular_D, _ = torch.svd_lowrank(torch.from_numpy(pairs_VC), q=wanted, niter=_ROUNDS)
        vectors_VD: Floats = (left_VD[:, :size] * singular_D[:size].sqrt()).numpy()
    vectors_VD -= vectors_VD[seen_V].mean(0) if seen_V.any() else 0
    vectors_VD[~seen_V] = 0
    lengths_V = np.linalg.norm(vectors_VD, axis=1, keepdims=True)
    np.divide(vectors_VD, lengths_V, out=vectors_VD, where=lengths_V > 0)
    return vectors_VD


def pair_counts(parts: Iterable[tuple[Ints, Ints]], counts_V: Ints, window: int = WINDOW) -> Floats:
    """Counts of tokens with context tokens in one document, by 1 / distance: float32 ``(V, C)``.

    parts: ids ``(T,)``, and the number of the document of each ``(T,)``; an id below 0 is no token, but takes a place.
    counts_V: how often each token occurs.
    """
    num_contexts = min(len(counts_V), max(1, MAX_ENTRIES // len(counts_V)))
    contexts = np.sort(np.argsort(-counts_V, kind="stable")[:num_contexts])
    column_V = np.full(len(counts_V) + 1, -1, np.int64)  # the last for ids below 0
    column_V[contexts] = np.arange(num_contexts)
    pairs_VC = np.zeros((len(counts_V), num_contexts), np.float32)
    for ids_T, documents_T in parts:
        for distance in range(1, window + 1):
            together = documents_T[:-distance] == documents_T[distance:]
            left, right = ids_T[:-distance][together], ids_T[distance:][together]
            for token, near in ((left, right), (right, left)):
                column = column_V[near]
                entries = (token * num_contexts + column)[(column >= 0) & (token >= 0)]
                np.add.at(pairs_VC.reshape(-1), entries, np.float32(1 / distance))
    return pairs_VC


def _to_information(pairs_VC: Floats) -> None:
    tokens_V = pairs_VC.sum(1, dtype=np.float64)
    contexts_C = pairs_VC.sum(0, dtype=np.float64) ** _SMOOTHING
    contexts_C /= max(contexts_C.sum(), 1.0)
    for start in range(0, len(pairs_VC), _BLOCK):
        block = pairs_VC[start : start + _BLOCK]
        expected = np.outer(tokens_V[start : start + _BLOCK], contexts_C)
        np.divide(block, expected, out=block, where=expected > 0, casting="same_kind")
        with np.errstate(divide="ignore"):
            np.log(block, out=block)
        np.maximum(block, 0, out=block)
