"""Texts and pairs of texts as token ids: the same for training and for prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from bertkit.errors import ConfigError, InputError, TextError, counted, shorten
from bertkit.ragged import GroupSet, Ragged, concatenate, rows_from_parts
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.templates import assemble, kept_lengths
from bertkit.windows import cut_windows, head_and_tail

Truncation = Literal["longest_first", "only_first", "only_second", "head_tail", "error"]
TRUNCATIONS: tuple[Truncation, ...] = ("longest_first", "only_first", "only_second", "head_tail", "error")
#: A text and None, or two texts.
Text = tuple[str, str | None]
#: Word pieces that two neighbouring windows of a long text share, unless another number is asked for.
STRIDE_OVERLAP = 128


def featurize_texts(
    texts: Sequence[str],
    text_pairs: Sequence[str] | None,
    tokenizer: PreTrainedTokenizer,
    *,
    max_length: int | None = None,
    truncation: Truncation = "longest_first",
) -> Ragged:
    """Token ids of texts, or of pairs of texts.

    Rows have at most ``max_length`` tokens, special tokens included; None means the tokenizer's ``model_max_length``.
    ``truncation`` says how a longer row is cut. "longest_first" removes tokens from the end of the longer text of a
    pair; "only_first", "only_second" from the end of that text; "head_tail" keeps the beginning and the end of a single
    text (see :func:`bertkit.windows.head_and_tail`); "error" cuts nothing: a longer row is an InputError.
    """
    if truncation not in TRUNCATIONS:
        raise ConfigError(f"unknown truncation {truncation!r}; use one of {', '.join(TRUNCATIONS)}")
    if not texts:
        raise InputError("there are no texts to encode")
    limit = tokenizer.model_max_length if max_length is None else max_length
    specials = tokenizer.template.num_special(paired=text_pairs is not None)
    if limit <= specials:
        raise ConfigError(f"max_length={limit} leaves no room for text beside the {specials} special tokens")
    if truncation == "head_tail" and text_pairs is not None:
        raise InputError("truncation='head_tail' is for single texts; use 'longest_first' for pairs")
    if truncation not in ("head_tail", "error"):
        return tokenizer.encode_ragged(texts, text_pairs, max_length=limit, truncation=truncation)
    rows = tokenizer.encode_ragged(texts, text_pairs, max_length=None, truncation="longest_first")
    if truncation == "head_tail":
        return head_and_tail(rows, limit)
    long = np.flatnonzero(rows.num_tokens_before > limit)
    if len(long):
        shown = shorten((f"text {row}: {rows.num_tokens_before[row]}" for row in long.tolist()), limit=3)
        raise TextError(
            f"{len(long):,} of {counted(len(rows), 'text')} {'has' if len(long) == 1 else 'have'} more than "
            f"{limit} tokens ({shown}). Shorten them, or allow truncation (truncation='longest_first')"
        )
    return rows


def featurize_mixed(
    texts: Sequence[Text],
    tokenizer: PreTrainedTokenizer,
    max_length: int | None = None,
    truncation: Truncation = "longest_first",
) -> Ragged:
    """The same for texts and pairs in any order."""
    pairs = [pair for _, pair in texts if pair is not None]
    if len(pairs) in (0, len(texts)):
        singles = [text for text, _ in texts]
        return featurize_texts(singles, pairs or None, tokenizer, max_length=max_length, truncation=truncation)
    # Two sets one after the other, then the rows in the order of the texts.
    alone = [row for row, (_, pair) in enumerate(texts) if pair is None]
    doubles = [row for row, (_, pair) in enumerate(texts) if pair is not None]
    sets = ([texts[row] for row in rows] for rows in (alone, doubles))
    parts = [featurize_mixed(each, tokenizer, max_length, truncation) for each in sets]
    return concatenate(parts).select(np.argsort(alone + doubles))


def featurize_windows(
    texts: Sequence[str], tokenizer: PreTrainedTokenizer, max_length: int | None = None, *, overlap: int | None = None
) -> GroupSet:
    """Token ids of long texts: [CLS] window [SEP], as many windows as cover the whole text.

    The last window of a text has at least as many word pieces as two windows share: ``overlap``, by default
    :data:`STRIDE_OVERLAP` or a quarter of a window where that is less. ``max_length`` counts special tokens.
    """
    if not texts:
        raise InputError("there are no texts to encode")
    whole = tokenizer.encode_ragged(texts)
    limit = tokenizer.model_max_length if max_length is None else max_length
    room = limit - 2
    if room < 1:
        raise ConfigError(f"max_length={limit} leaves no room for text beside the 2 special tokens")
    common = min(STRIDE_OVERLAP, room // 4) if overlap is None else overlap
    if not 0 <= common < room:
        raise ConfigError(f"overlap={common} must be from 0 to {room - 1}, one less than the {room} pieces of a window")
    windows = cut_windows(whole.lengths - 2, room, room - common)
    begins, ends = whole.boundaries[:-1][windows.owners], whole.boundaries[1:][windows.owners]
    one = np.ones_like(begins)
    sequences = rows_from_parts(
        whole.ids,
        whole.token_type_ids,
        np.stack([begins, begins + 1 + windows.starts, ends - 1], axis=1),
        np.stack([one, windows.sizes, one], axis=1),
    )
    return GroupSet(sequences, windows.groups, whole.num_tokens_before, np.zeros(len(texts), dtype=np.bool_))


def featurize_crossed(first: Ragged, second: Ragged, tokenizer: PreTrainedTokenizer, max_length: int) -> GroupSet:
    """Token ids of every pair of a first and a second text, which were encoded without special tokens.

    As encoding the pairs one by one, but each text is tokenized once. A first text is cut where a pair has more than
    ``max_length`` tokens; a second one that leaves it no room is an InputError. The B rows of the result are the first
    texts, each with a sequence for every second one; ``num_tokens_before`` is that of its longest pair.
    """
    count = len(second)
    pairs = (
        first.select(np.repeat(np.arange(len(first)), count)),
        second.select(np.tile(np.arange(count), len(first))),
    )
    num_special = tokenizer.template.num_special(paired=True)
    kept = kept_lengths(pairs[0].lengths, pairs[1].lengths, max_length, num_special, "only_first")
    sequences = assemble(
        [(part.ids, part.lengths) for part in pairs],
        [lengths for lengths in kept if lengths is not None],
        (tokenizer.cls_token_id, tokenizer.sep_token_id),
        template=tokenizer.template,
        from_left=tokenizer.truncation_side == "left",
    )
    before = sequences.num_tokens_before.reshape(len(first), count).max(axis=1)
    return GroupSet(sequences, np.arange(0, len(sequences) + 1, count), before, before > max_length)
