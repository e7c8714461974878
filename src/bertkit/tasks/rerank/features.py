"""Queries with their documents as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bertkit.errors import InputError
from bertkit.ragged import Floats, GroupSet, boundaries_of
from bertkit.tasks.rerank.task import RerankExample
from bertkit.tokenization.features import featurize_texts
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


def featurize_candidates(
    examples: Sequence[RerankExample],
    tokenizer: PreTrainedTokenizer,
    max_length: int | None = None,
    *,
    gains: Floats | None = None,
) -> GroupSet:
    """Token ids of queries: one sequence, [CLS] query [SEP] document [SEP], for each document.

    Of a pair that does not fit the longer text is cut at its end, as cross-encoders elsewhere read it. ``gains`` are of
    all documents, query after query.
    """
    sizes = np.array([len(example.documents) for example in examples], dtype=np.int64)
    if not len(sizes) or not sizes.all():
        raise InputError(
            "there are no queries to encode" if not len(sizes) else f"query {sizes.argmin()} has no document"
        )
    queries = [example.query for example in examples for _ in example.documents]
    texts = [text for example in examples for text in example.documents]
    rows = featurize_texts(queries, texts, tokenizer, max_length=max_length)
    return GroupSet.of(replace(rows, labels=gains), boundaries_of(sizes))


def numbers_of_documents(examples: Sequence[RerankExample]) -> dict[str, int]:
    """The different documents of all queries, numbered in their order."""
    different = dict.fromkeys(text for example in examples for text in example.documents)
    return {text: number for number, text in enumerate(different)}


def gains_of(examples: Sequence[RerankExample]) -> Floats:
    """How relevant all documents are, query after query: float32 ``(N,)``; of labelled examples."""
    return np.array([gain for example in examples for gain in example.gains or ()], np.float32)
