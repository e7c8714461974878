"""Word embeddings from which tokens of a store stand near each other: what a new model can begin with.

Counting takes seconds where a masked LM takes hours to learn as much about single words. The counts of pairs within a
window, the nearer the heavier, become positive pointwise mutual information with smoothed contexts, and a truncated SVD
of it the vectors (Levy & Goldberg 2014; Levy, Goldberg & Dagan 2015, with their settings: window weighted by distance,
contexts to the power of 0.75, square roots of the singular values).
Deviates: contexts are the most frequent tokens only, as many as memory allows; the SVD is a randomised one (Halko et
al. 2011); the mean is taken off and every vector has length 1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from bertkit.data.store.token_store import TokenStore
from bertkit.system.console import progress
from bertkit.training.pretraining.unigram_statistics import parts_of, unigram_counts
from bertkit.training.trainer.generators import seeded

#: How far apart two tokens of a pair may be; a pair at distance d counts 1 / d.
WINDOW = 8
#: Most entries of the table of pairs, 4 bytes each: all pairs of a vocabulary of 11,585.
MAX_ENTRIES = 1 << 27
_SMOOTHING = 0.75
#: Of the randomised SVD: more dimensions than are wanted, and rounds.
_OVERSAMPLING, _ROUNDS = 24, 3
#: Rows of the table that are worked on at a time.
_BLOCK = 1024

Floats = npt.NDArray[np.float32]


def cooccurrence_vectors(store: TokenStore, size: int, *, seed: int = 0) -> Floats:
    """A vector of length 1 for every token of the tokenizer: float32 ``(num_tokens, d)``, d at most ``size``.

    Of a store of more than 50 million tokens, evenly spread parts of that many are counted. Takes below a second a
    million tokens, and 4 bytes for each of :data:`MAX_ENTRIES`. The same on every machine but for rounding.

    Args:
        store: the text.
        size: of the vectors; there are fewer dimensions where the vocabulary is smaller.
        seed: of the random projection in the SVD.

    Returns:
        The vectors; zeros for tokens that stand near no other.
    """
    pairs_VC = count_pairs(store)
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


def count_pairs(store: TokenStore) -> Floats:
    """How often a token has a context token near it, weighted by 1 / distance: float32 ``(num_tokens, contexts)``.

    Contexts are the most frequent tokens, in the order of their ids. Pairs never span two documents.
    """
    counts_V = unigram_counts(store)
    num_contexts = min(len(counts_V), max(1, MAX_ENTRIES // len(counts_V)))
    contexts = np.sort(np.argsort(-counts_V, kind="stable")[:num_contexts])
    column_V = np.full(len(counts_V), -1, np.int64)
    column_V[contexts] = np.arange(num_contexts)
    pairs_VC = np.zeros((len(counts_V), num_contexts), np.float32)
    for first, end in progress(parts_of(store), label="tokens near each other", unit="parts"):
        ids_T = store.tokens(first, end).astype(np.int64)
        document_of = np.searchsorted(store.document_boundaries, np.arange(first, end), side="right")
        documents_T = np.repeat(document_of, store.sentence_lengths[first:end])
        for distance in range(1, WINDOW + 1):
            together = documents_T[:-distance] == documents_T[distance:]
            left, right = ids_T[:-distance][together], ids_T[distance:][together]
            for token, near in ((left, right), (right, left)):
                column = column_V[near]
                entries = (token * num_contexts + column)[column >= 0]
                np.add.at(pairs_VC.reshape(-1), entries, np.float32(1 / distance))
    return pairs_VC


def _to_information(pairs_VC: Floats) -> None:
    """Positive pointwise mutual information in the place of the counts."""
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
