"""How frequent each token of a store is: what a masked LM knows that has not begun to read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bertkit.data.store.token_store import TokenStore

#: Most tokens that :func:`unigram_counts` counts, evenly spread over the store.
COUNTED_TOKENS = 50_000_000
#: Tokens that are read at a time.
_READ_TOKENS = 1_000_000


def unigram_counts(store: TokenStore) -> npt.NDArray[np.int64]:
    """How often each token of the tokenizer is in the store: ``(num_tokens,)``.

    Of a store of more than 50 million tokens, evenly spread parts of that many are counted.
    """
    counts = np.zeros(store.manifest.tokenizer.num_tokens, np.int64)
    for first, end in parts_of(store):
        counts += np.bincount(store.tokens(first, end), minlength=len(counts))
    return counts


def parts_of(store: TokenStore) -> list[tuple[int, int]]:
    """First and end sentence of the parts, of a million tokens each, that are counted."""
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
    """Entropy in nats of the distribution of the tokens of a store: the loss of a masked LM that has learned how
    frequent each token is, and nothing else. A run that stays there has not begun to read.
    """
    counts = unigram_counts(store)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def unigram_logits(store: TokenStore) -> npt.NDArray[np.float32]:
    """Logits ``(num_tokens,)`` whose softmax is the frequency of each token; one never seen counts as seen once."""
    seen = np.maximum(unigram_counts(store), 1)
    logits: npt.NDArray[np.float32] = np.log(seen / seen.sum()).astype(np.float32)
    return logits
