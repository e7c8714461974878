"""Queries with their documents as token ids. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertkit.errors import InputError
from bertkit.ragged import Floats, GroupSet, Ragged, boundaries_of
from bertkit.tasks.rerank.task import RerankExample
from bertkit.tokenization.features import featurize_texts
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


def featurize_candidates(
    pairs: Sequence[tuple[str, Sequence[str]]],
    tokenizer: PreTrainedTokenizer,
    max_length: int | None = None,
    *,
    gains: Floats | None = None,
) -> GroupSet:
    """Token ids of queries: one sequence, [CLS] query [SEP] document [SEP], for each document.

    Of a pair that does not fit the longer text is cut at its end, as cross-encoders elsewhere read it.

    Args:
        pairs: queries, each with one document or more.
        tokenizer: of the model.
        max_length: None: the tokenizer's ``model_max_length``.
        gains: of all documents, query after query; they become ``sequences.labels``.
    """
    sizes = np.array([len(documents) for _, documents in pairs], dtype=np.int64)
    if not len(sizes) or not sizes.all():
        raise InputError(
            "there are no queries to encode" if not len(sizes) else f"query {sizes.argmin()} has no document"
        )
    queries = [query for query, documents in pairs for _ in documents]
    texts = [text for _, documents in pairs for text in documents]
    rows = featurize_texts(queries, texts, tokenizer, max_length=max_length)
    groups = boundaries_of(sizes)
    sequences = Ragged(rows.ids, rows.boundaries, rows.token_type_ids, rows.num_tokens_before, labels=gains)
    return GroupSet(
        sequences,
        groups,
        np.add.reduceat(rows.num_tokens_before, groups[:-1]),
        np.logical_or.reduceat(rows.truncated, groups[:-1]),
    )


def gains_of(examples: Sequence[RerankExample]) -> Floats:
    """How relevant all documents are, query after query: float32 ``(N,)``; of labelled examples."""
    return np.array([gain for example in examples for gain in example.gains or ()], np.float32)
