"""Rows of several sequences each: a question with its choices, a long document with its windows.

The encoder sees sequences, training and evaluation count rows: a batch of rows holds all sequences of each
(:func:`collate_groups`), and one row has one label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from bertkit.batch import Batch
from bertkit.errors import ConfigError, InputError
from bertkit.tasks.text.features import FeatureSet, Ints, RaggedTokens, TextEncoder, collate

#: Word pieces that two neighbouring windows of a long text have in common, unless another number is asked for.
STRIDE_OVERLAP = 128


class QuestionExample(Protocol):
    """What :func:`featurize_choices` reads of an example; :class:`bertkit.tasks.choices.task.ChoiceExample` is one."""

    @property
    def pairs(self) -> Sequence[tuple[str, str]]:
        """The two texts of each choice."""

    @property
    def label(self) -> int | None:
        """Number of the right choice, or None."""


@dataclass(frozen=True, slots=True)
class GroupSet:
    """R rows of one or more sequences each, S sequences in all.

    sequences: their token ids; without labels.
    groups: int64 ``(R + 1,)``; row r owns the sequences ``groups[r] : groups[r + 1]``.
    num_tokens: int64 ``(R,)``, tokens of a row before truncation, as :attr:`FeatureSet.num_tokens`.
    truncated: bool ``(R,)``, rows that lost something.
    labels: int64 ``(R,)``, float32 ``(R,)`` or ``(R, C)``, or None.
    """

    sequences: FeatureSet
    groups: Ints
    num_tokens: Ints
    truncated: npt.NDArray[np.bool_]
    labels: npt.NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.groups) - 1

    @property
    def sizes(self) -> Ints:
        """Sequences of each row, int64 ``(R,)``."""
        return np.diff(self.groups)

    @property
    def lengths(self) -> Ints:
        """Tokens of each row, over all of its sequences: int64 ``(R,)``."""
        return np.diff(self.sequences.boundaries[self.groups])

    def sequences_of(self, rows: npt.ArrayLike) -> Ints:
        """Numbers of the sequences of some rows, in their order."""
        chosen = np.asarray(rows, dtype=np.int64)
        parts = [np.arange(self.groups[row], self.groups[row + 1]) for row in chosen.tolist()]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def mean(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Mean over the sequences of each row: ``(S, ...)`` to ``(R, ...)``, in the type of ``values``."""
        sums = np.add.reduceat(values.astype(np.float64), self.groups[:-1], axis=0)
        return (sums / self.sizes.reshape(-1, *(1,) * (values.ndim - 1))).astype(values.dtype)

    def select(self, rows: npt.ArrayLike) -> GroupSet:
        """Those rows, in that order, as a set of their own; a row may be taken twice."""
        chosen = np.asarray(rows, dtype=np.int64)
        return GroupSet(
            self.sequences.select(self.sequences_of(chosen)),
            boundaries_of(self.sizes[chosen]),
            self.num_tokens[chosen],
            self.truncated[chosen],
            None if self.labels is None else self.labels[chosen],
        )


def featurize_choices(
    examples: Sequence[QuestionExample],
    tokenizer: TextEncoder,
    max_length: int | None = None,
    *,
    labelled: bool = True,
) -> GroupSet:
    """Token ids of questions: one sequence, [CLS] context [SEP] choice [SEP], for each choice.

    Where a pair does not fit, its context is cut at the end and the choice stays whole, so that no choice is lost or
    becomes equal to another; only where a choice alone does not fit, the longer of the two is cut. Deviates from the
    original, which always cuts the longer one.

    Args:
        examples: see :class:`bertkit.tasks.choices.task.ChoiceExample`.
        tokenizer: gives ``encode_ragged``.
        max_length: most tokens of a sequence, special tokens included; None: the tokenizer's ``model_max_length``.
        labelled: take the labels along, which then all examples have, or none.

    Raises:
        InputError: no examples, a question without choices, labels on some only.
        ConfigError: a ``max_length`` that leaves no room.
    """
    if not examples:
        raise InputError("no examples to turn into features")
    sizes = np.array([len(example.pairs) for example in examples], dtype=np.int64)
    if not sizes.all():
        raise InputError(f"question {int(np.argmin(sizes))} has no choices")
    first, second = zip(*chain.from_iterable(example.pairs for example in examples), strict=True)
    limit = tokenizer.model_max_length if max_length is None else max_length
    sequences = _pairs_that_fit(list(first), list(second), tokenizer, limit)
    groups = boundaries_of(sizes)
    return GroupSet(
        sequences,
        groups,
        np.add.reduceat(sequences.num_tokens, groups[:-1]),
        np.logical_or.reduceat(sequences.truncated, groups[:-1]),
        _labels_of([example.label for example in examples]) if labelled else None,
    )


def featurize_windows(
    texts: Sequence[str], tokenizer: TextEncoder, max_length: int | None = None, *, overlap: int | None = None
) -> GroupSet:
    """Token ids of long texts: [CLS] window [SEP], as many windows as cover the whole text.

    A text that fits is one window. The windows of a longer one have the same number of word pieces but for the last,
    which has at least as many as two windows have in common.

    Args:
        texts: B texts.
        tokenizer: gives ``encode_ragged``.
        max_length: most tokens of a window, special tokens included; None: the tokenizer's ``model_max_length``.
        overlap: word pieces that two neighbouring windows have in common; None: :data:`STRIDE_OVERLAP`, or a quarter
            of a window where that is less.

    Raises:
        InputError: no texts.
        ConfigError: a ``max_length`` that leaves no room, or an ``overlap`` that is not below the size of a window.
    """
    if not texts:
        raise InputError("no texts to turn into features")
    whole = tokenizer.encode_ragged(texts)
    if whole.boundaries[-1] == 0:
        raise InputError("the tokenizer made no token of these texts")
    limit = tokenizer.model_max_length if max_length is None else max_length
    room = limit - 2
    if room < 1:
        raise ConfigError(f"max_length={limit} leaves no room beside 2 special tokens")
    common = min(STRIDE_OVERLAP, room // 4) if overlap is None else overlap
    if not 0 <= common < room:
        raise ConfigError(f"overlap={common} must be from 0 to {room - 1}, one less than the {room} pieces of a window")
    pieces = np.diff(whole.boundaries) - 2
    sizes = 1 + np.maximum(0, -(-(pieces - room) // (room - common)))
    groups = boundaries_of(sizes)
    row = np.repeat(np.arange(len(texts)), sizes)
    start = (np.arange(groups[-1]) - groups[:-1][row]) * (room - common)  # first word piece of each window
    count = np.minimum(pieces[row] - start, room)
    sequences = _windows_at(whole, row, start, count)
    return GroupSet(sequences, groups, whole.num_tokens_before, np.zeros(len(texts), dtype=np.bool_))


def collate_groups(rows_of: GroupSet, rows: npt.ArrayLike, *, labelled: bool, label_each: bool = False) -> Batch:
    """A packed batch of all sequences of some rows, in their order.

    Args:
        rows_of: where they come from.
        rows: row numbers, in the order wanted.
        labelled: whether ``targets["labels"]`` holds the labels of the rows, one a row.
        label_each: one a sequence instead: that of its row.

    Raises:
        InputError: no rows, or ``labelled`` for rows without labels.
    """
    chosen = np.asarray(rows, dtype=np.int64)
    batch = collate(rows_of.sequences, rows_of.sequences_of(chosen))
    if labelled:
        if rows_of.labels is None:
            raise InputError("these rows have no labels; pass labelled=False to predict")
        labels = rows_of.labels[chosen]
        if label_each:
            labels = np.repeat(labels, rows_of.sizes[chosen], axis=0)
        batch = batch.with_target("labels", torch.from_numpy(labels))
    return batch


def boundaries_of(sizes: Ints) -> Ints:
    """``(0, s0, s0 + s1, ...)``: int64, one more than ``sizes``."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def concatenate(sets: Sequence[FeatureSet]) -> FeatureSet:
    """The sequences of several sets, one set after the other, without labels."""
    return FeatureSet(
        np.concatenate([part.input_ids for part in sets]),
        np.concatenate([part.token_type_ids for part in sets]),
        boundaries_of(np.concatenate([part.lengths for part in sets])),
        np.concatenate([part.num_tokens for part in sets]),
    )


def _pairs_that_fit(first: list[str], second: list[str], tokenizer: TextEncoder, limit: int) -> FeatureSet:
    """Pairs of texts, of which the first is cut where that is enough."""
    whole = _as_features(tokenizer.encode_ragged(first, second))
    long = np.flatnonzero(whole.lengths > limit)
    if not len(long):
        return whole
    texts, choices = [first[row] for row in long], [second[row] for row in long]
    of_first = tokenizer.encode_ragged(texts, add_special_tokens=False).num_tokens_before
    of_choice = tokenizer.encode_ragged(choices, add_special_tokens=False).num_tokens_before
    num_specials = int(whole.num_tokens[long[0]] - of_first[0] - of_choice[0])
    if limit <= num_specials:
        raise ConfigError(f"max_length={limit} leaves no room beside {num_specials} special tokens")
    choice_fits = of_choice + num_specials < limit
    parts, order = [whole], np.arange(len(whole))
    for fits, truncation in ((True, "only_first"), (False, "longest_first")):
        places = np.flatnonzero(choice_fits == fits)
        if len(places):
            order[long[places]] = sum(map(len, parts)) + np.arange(len(places))
            chosen = [texts[place] for place in places], [choices[place] for place in places]
            parts.append(_as_features(tokenizer.encode_ragged(*chosen, max_length=limit, truncation=truncation)))
    return concatenate(parts).select(order)


def _as_features(ragged: RaggedTokens) -> FeatureSet:
    return FeatureSet(ragged.ids, ragged.token_type_ids, ragged.boundaries, ragged.num_tokens_before)


def _windows_at(whole: RaggedTokens, row: Ints, start: Ints, count: Ints) -> FeatureSet:
    """Windows of whole texts: of text ``row`` the word pieces ``start ... start + count - 1``, special tokens added."""
    boundaries = boundaries_of(count + 2)
    place = np.arange(boundaries[-1]) - np.repeat(boundaries[:-1], count + 2)  # of each token in its window
    last = np.repeat(count + 1, count + 2)
    begin, end = whole.boundaries[:-1][row], whole.boundaries[1:][row]
    source = np.repeat(begin + start, count + 2) + place
    source = np.where(place == 0, np.repeat(begin, count + 2), source)
    source = np.where(place == last, np.repeat(end - 1, count + 2), source)
    return FeatureSet(whole.ids[source], whole.token_type_ids[source], boundaries, (count + 2).astype(np.int64))


def _labels_of(labels: Sequence[int | None]) -> Ints | None:
    known = [label for label in labels if label is not None]
    if known and len(known) != len(labels):
        raise InputError(f"{len(known):,} of {len(labels):,} examples have a label; all must, or none")
    return np.asarray(known, dtype=np.int64) if known else None
