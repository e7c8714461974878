"""Word statistics of a token store: frequencies, and embeddings computed from co-occurrence counts.

A masked LM that has not begun to read knows word frequencies only, so their entropy is the loss to beat. Counting
co-occurrences takes seconds where a masked LM takes hours to learn as much about single words: the counts of pairs
within a window, weighted by distance, become positive pointwise mutual information with smoothed contexts, and a
truncated SVD of that matrix gives the embeddings a new model can start from (Levy & Goldberg 2014; Levy, Goldberg &
Dagan 2015, with their settings: contexts to the power of 0.75, square roots of the singular values). Deviations:
contexts are the most frequent tokens only, as many as memory allows; the SVD is randomized (Halko et al. 2011); the
mean is subtracted and every vector has length 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from bertkit.data.store.token_store import TokenStore
from bertkit.metrics.probabilities import entropy
from bertkit.ragged import Floats, Ints
from bertkit.system.console import progress
from bertkit.training.trainer.generators import seeded

#: Maximum tokens that :func:`unigram_counts` counts, evenly spread over the store.
COUNTED_TOKENS = 50_000_000
#: Tokens read at a time.
_READ_TOKENS = 1_000_000
#: Maximum distance between the two tokens of a pair; a pair at distance d counts 1 / d.
WINDOW = 8
#: Maximum entries of the pair table, 4 bytes each: all pairs of a vocabulary of 11,585.
MAX_ENTRIES = 1 << 27
_SMOOTHING = 0.75
#: Extra dimensions and power iterations of the randomized SVD.
_OVERSAMPLING, _ROUNDS = 24, 3
#: Rows of the pair table processed at a time.
_BLOCK = 1024


def unigram_counts(store: TokenStore) -> Ints:
    """Count of each token ``(num_tokens,)``; of more than 50 million, that many in evenly spread parts of the store."""
    counts = np.zeros(store.manifest.tokenizer.num_tokens, np.int64)
    for first, end in parts_of(store):
        counts += np.bincount(store.tokens(first, end), minlength=len(counts))
    return counts


def parts_of(store: TokenStore) -> list[tuple[int, int]]:
    """First and end sentence of each counted part of a million tokens."""
    bounds = store.sentence_boundaries
    total = int(bounds[-1])
    stride = max(1.0, total / COUNTED_TOKENS) * _READ_TOKENS
    parts = []
    at = 0.0
    while at < total:
        first = int(np.searchsorted(bounds, int(at), side="left"))
        end = int(np.searchsorted(bounds, min(int(at) + _READ_TOKENS, total), side="left"))
        if end > first:
            parts.append((first, end))
        at += stride
    return parts


def unigram_entropy(store: TokenStore) -> float:
    """Entropy of a store's tokens in nats: the loss of a masked LM that knows only frequencies, and cannot yet read."""
    return entropy(unigram_counts(store))


def target_entropy(store: TokenStore, targets: Ints, special: Sequence[int]) -> float:
    """The same of what an encoder-decoder writes: words of the store, and ``special`` tokens in no text.

    ``targets`` of some examples tell how often special tokens occur; a sample would lack rare words.
    """
    is_special = np.isin(targets, special)
    counts, share = np.bincount(targets[is_special], minlength=1), float(is_special.mean())
    which = entropy(np.array([share, 1 - share]))
    return which + share * entropy(counts) + (1 - share) * unigram_entropy(store)


def unigram_logits(store: TokenStore) -> Floats:
    """Logits ``(num_tokens,)`` whose softmax is each token's frequency; an unseen token counts as seen once."""
    seen = np.maximum(unigram_counts(store), 1)
    logits: Floats = np.log(seen / seen.sum()).astype(np.float32)
    return logits


def cooccurrence_vectors(store: TokenStore, size: int, *, seed: int = 0) -> Floats:
    """A vector of length 1 for every token of the tokenizer: float32 ``(num_tokens, d)``, d at most ``size``.

    Takes under a second per million tokens; the same everywhere up to rounding; tokens without a pair get zeros.
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
    """Counts of tokens with context tokens in one document, by 1 / distance: float32 ``(num_tokens, contexts)``."""
    counts_V = unigram_counts(store)
    num_contexts = min(len(counts_V), max(1, MAX_ENTRIES // len(counts_V)))
    contexts = np.sort(np.argsort(-counts_V, kind="stable")[:num_contexts])
    column_V = np.full(len(counts_V), -1, np.int64)
    column_V[contexts] = np.arange(num_contexts)
    pairs_VC = np.zeros((len(counts_V), num_contexts), np.float32)
    for first, end in progress(parts_of(store), label="counting co-occurrences", unit="parts"):
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
