"""Word statistics of a token store: frequencies, and embeddings computed from co-occurrence counts.

A masked LM that has not begun to read knows word frequencies only, so their entropy is the loss to beat. Counting
co-occurrences takes seconds where a masked LM takes hours to learn as much about single words: a new model can start
from the vectors of :mod:`bertkit.training.word_vectors.cooccurrence`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertkit.data.store.token_store import TokenStore
from bertkit.metrics.probabilities import entropy
from bertkit.ragged import Floats, Ints
from bertkit.system.console import progress
from bertkit.training.word_vectors.cooccurrence import pair_counts, vectors_of_pairs

#: Maximum tokens that :func:`unigram_counts` counts, evenly spread over the store.
COUNTED_TOKENS = 50_000_000
#: Tokens read at a time.
_READ_TOKENS = 1_000_000


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

    Takes under a second per million tokens; see :mod:`bertkit.training.word_vectors.cooccurrence`.
    """
    return vectors_of_pairs(count_pairs(store), size, seed=seed)


def count_pairs(store: TokenStore) -> Floats:
    """Counts of tokens with context tokens in one document, by 1 / distance: float32 ``(num_tokens, contexts)``."""
    parts = progress(parts_of(store), label="counting co-occurrences", unit="parts")
    return pair_counts((_with_documents(store, first, end) for first, end in parts), unigram_counts(store))


def _with_documents(store: TokenStore, first: int, end: int) -> tuple[Ints, Ints]:
    document_of = np.searchsorted(store.document_boundaries, np.arange(first, end), side="right")
    return store.tokens(first, end).astype(np.int64), np.repeat(document_of, store.sentence_lengths[first:end])
