"""Texts and pairs of texts as the rows of a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from bertkit.errors import InputError
from bertkit.ragged import Floats, GroupSet, Ragged
from bertkit.tokenization.features import Text, Truncation, featurize_mixed, featurize_windows
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Texts as token ids: each one sequence, or read in windows as many as cover it.
TextRows = Ragged | GroupSet
#: What happens to a text that is too long: it is cut in one of several ways, or read whole in windows.
LongTexts = Literal["cut", "windows"] | Truncation


def encode_texts(
    texts: Sequence[Text],
    tokenizer: PreTrainedTokenizer,
    max_length: int | None = None,
    long_texts: LongTexts = "cut",
    overlap: int | None = None,
) -> TextRows:
    """Token ids of one or more texts and pairs; a pair to be read in windows, or cut in the middle, is refused."""
    if long_texts != "windows":
        return featurize_mixed(texts, tokenizer, max_length, "longest_first" if long_texts == "cut" else long_texts)
    if any(pair is not None for _, pair in texts):
        raise InputError(
            "truncation='windows' (of a run: long_texts) reads single texts, got a pair; use truncation=True"
        )
    return featurize_windows([text for text, _ in texts], tokenizer, max_length, overlap=overlap)


def sequences_of(rows: TextRows) -> Ragged:
    """What is computed of texts."""
    return rows.sequences if isinstance(rows, GroupSet) else rows


def values_of(rows: TextRows, values: Floats) -> Floats:
    """From the values of the sequences to those of the texts ``(R, ...)``: in windows their mean."""
    return rows.mean(values) if isinstance(rows, GroupSet) else values
