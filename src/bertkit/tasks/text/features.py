"""From texts to packed model input: the one way, for training and for serving.

A data set is held in a few flat arrays (:class:`FeatureSet`), not in one object a row: 100,000 tweets take 10 MB, and a
batch is gathered from them by numpy alone (:func:`collate`). Which rows form a batch is a pure function of the lengths,
a seed and an epoch (:func:`token_budget_batches`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch

from bertkit.batch import Batch, Layout
from bertkit.errors import ConfigError, InputError, shorten

Truncation = Literal["longest_first", "only_first", "only_second", "head_tail", "error"]
TRUNCATIONS: tuple[Truncation, ...] = ("longest_first", "only_first", "only_second", "head_tail", "error")
#: Of the 510 word pieces of a text that fit between [CLS] and [SEP], how many ``head_tail`` takes from the beginning;
#: the other 382 come from the end (Sun et al. 2019, section 5.3.1). Other limits are shared out in this proportion.
HEAD_OF_510 = 128

Ints = npt.NDArray[np.int64]


class TextExample(Protocol):
    """What :func:`featurize` reads of an example; :class:`bertkit.tasks.Example` is one."""

    @property
    def text(self) -> str:
        """The first or only text."""

    @property
    def text_pair(self) -> str | None:
        """The second text, or None."""

    @property
    def label(self) -> int | float | None:
        """Label number, score, or None."""


class RaggedTokens(Protocol):
    """Token ids of many texts end to end: :class:`bertkit.tokenization.Ragged`."""

    @property
    def ids(self) -> npt.NDArray[np.int32]:
        """``(T,)``."""

    @property
    def boundaries(self) -> Ints:
        """``(B + 1,)``: text b owns ``ids[boundaries[b] : boundaries[b + 1]]``."""

    @property
    def token_type_ids(self) -> npt.NDArray[np.int8]:
        """``(T,)``."""

    @property
    def num_tokens_before(self) -> Ints:
        """``(B,)``: tokens before truncation."""


class TextEncoder(Protocol):
    """What this module needs of a tokenizer; :class:`bertkit.tokenization.BertTokenizer` has it."""

    model_max_length: int

    def encode_ragged(
        self,
        texts: Sequence[str],
        text_pairs: Sequence[str] | None = None,
        *,
        add_special_tokens: bool = True,
        max_length: int | None = None,
        truncation: Any = "longest_first",
    ) -> RaggedTokens:
        """Token ids of texts or pairs, cut to ``max_length`` where it is given."""


@dataclass(frozen=True, slots=True)
class Features:
    """One row of a :class:`FeatureSet`.

    input_ids int32 ``(s,)`` and token_type_ids int8 ``(s,)``, special tokens included; label as in the example;
    num_tokens before truncation; truncated when that is more than s.
    """

    input_ids: npt.NDArray[np.int32]
    token_type_ids: npt.NDArray[np.int8]
    label: int | float | None
    num_tokens: int

    @property
    def truncated(self) -> bool:
        """Whether something was cut off."""
        return self.num_tokens > len(self.input_ids)


@dataclass(frozen=True, slots=True)
class FeatureSet:
    """Token ids of B texts end to end.

    input_ids: int32 ``(T,)``, special tokens included.
    token_type_ids: int8 ``(T,)``, the segment of each token.
    boundaries: int64 ``(B + 1,)``; row b owns tokens ``boundaries[b] : boundaries[b + 1]``.
    num_tokens: int64 ``(B,)``, tokens before truncation.
    labels: int64 ``(B,)`` label numbers, float32 ``(B,)`` scores, float32 ``(B, C)`` of 1 and 0, or None.
    """

    input_ids: npt.NDArray[np.int32]
    token_type_ids: npt.NDArray[np.int8]
    boundaries: Ints
    num_tokens: Ints
    labels: npt.NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.boundaries) - 1

    @property
    def lengths(self) -> Ints:
        """Tokens of each row, int64 ``(B,)``."""
        return np.diff(self.boundaries)

    @property
    def truncated(self) -> npt.NDArray[np.bool_]:
        """Which rows lost something, bool ``(B,)``."""
        return self.num_tokens > self.lengths

    def __getitem__(self, row: int) -> Features:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        row %= len(self)
        start, end = int(self.boundaries[row]), int(self.boundaries[row + 1])
        label = None if self.labels is None else self.labels[row].item()
        return Features(self.input_ids[start:end], self.token_type_ids[start:end], label, int(self.num_tokens[row]))

    def select(self, rows: npt.ArrayLike) -> FeatureSet:
        """Those rows, in that order, as a set of their own; a row may be taken twice."""
        chosen = np.asarray(rows, dtype=np.int64)
        tokens, lengths = _gather(self.boundaries, chosen)
        return FeatureSet(
            self.input_ids[tokens],
            self.token_type_ids[tokens],
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            self.num_tokens[chosen],
            None if self.labels is None else self.labels[chosen],
        )


def featurize(
    examples: Sequence[TextExample],
    tokenizer: TextEncoder,
    max_length: int | None = None,
    truncation: Truncation = "longest_first",
) -> FeatureSet:
    """Token ids and labels of examples.

    Args:
        examples: all pairs or all single texts; all labelled or none.
        tokenizer: gives ``encode_ragged``.
        max_length: see :func:`featurize_texts`.
        truncation: see :func:`featurize_texts`.

    Raises:
        InputError: no examples, pairs and single texts mixed, labels on some only; and as :func:`featurize_texts`.
    """
    if not examples:
        raise InputError("no examples to turn into features")
    pairs = [example.text_pair for example in examples]
    second = [pair for pair in pairs if pair is not None]
    if second and len(second) != len(pairs):
        raise InputError(f"{len(second):,} of {len(pairs):,} examples are pairs of texts; all must be, or none")
    features = featurize_texts(
        [example.text for example in examples], second or None, tokenizer, max_length=max_length, truncation=truncation
    )
    labels = [example.label for example in examples]
    known = [label for label in labels if label is not None]
    if not known:
        return features
    if len(known) != len(labels):
        raise InputError(f"{len(known):,} of {len(labels):,} examples have a label; all must, or none")
    numbers = np.asarray(known, dtype=np.float32 if any(isinstance(label, float) for label in known) else np.int64)
    return FeatureSet(features.input_ids, features.token_type_ids, features.boundaries, features.num_tokens, numbers)


def featurize_texts(
    texts: Sequence[str],
    text_pairs: Sequence[str] | None,
    tokenizer: TextEncoder,
    *,
    max_length: int | None = None,
    truncation: Truncation = "longest_first",
) -> FeatureSet:
    """Token ids of texts, or of pairs of texts.

    Args:
        texts: B texts.
        text_pairs: B second texts, or None.
        tokenizer: gives ``encode_ragged``.
        max_length: most tokens of a row, special tokens included; None means the tokenizer's ``model_max_length``.
        truncation: how a longer row is cut. "longest_first" takes tokens off the end of the longer text of a pair;
            "only_first", "only_second" off the end of that text; "head_tail" keeps the beginning and the end of a
            single text (128 + 382 word pieces at 512, Sun et al. 2019); "error" cuts nothing.

    Raises:
        InputError: no texts, a row over ``max_length`` under "error" (the message counts them), "head_tail" with pairs.
        ConfigError: an unknown ``truncation``, or a ``max_length`` that leaves no room.
    """
    if truncation not in TRUNCATIONS:
        raise ConfigError(f"unknown truncation {truncation!r}; use one of {', '.join(TRUNCATIONS)}")
    if not texts:
        raise InputError("no texts to turn into features")
    limit = tokenizer.model_max_length if max_length is None else max_length
    specials = 2 if text_pairs is None else 3
    if limit <= specials:
        raise ConfigError(f"max_length={limit} leaves no room beside {specials} special tokens")
    whole = truncation in ("head_tail", "error")
    ragged = tokenizer.encode_ragged(
        texts,
        text_pairs,
        max_length=None if whole else limit,
        truncation="longest_first" if whole else truncation,
    )
    features = FeatureSet(ragged.ids, ragged.token_type_ids, ragged.boundaries, ragged.num_tokens_before)
    if truncation == "error":
        _check_lengths(features.num_tokens, limit)
    if truncation == "head_tail":
        if text_pairs is not None:
            raise InputError("truncation='head_tail' is for single texts; use 'longest_first' for pairs")
        return _keep_head_and_tail(features, limit)
    return features


def collate(
    features: FeatureSet,
    rows: npt.ArrayLike,
    kind: Literal["classification", "regression", "multi_label"] | None = None,
) -> Batch:
    """A packed batch of some rows.

    Args:
        features: where they come from.
        rows: row numbers, in the order wanted; any sequence of integers.
        kind: what ``targets["labels"]`` holds: int64 ``(B,)`` for classification, float32 ``(B,)`` for regression,
            float32 ``(B, C)`` for several labels a row; None leaves labels out, for prediction.

    Raises:
        InputError: no rows, or ``kind`` given for rows without labels.
    """
    chosen = np.asarray(rows, dtype=np.int64)
    if chosen.size == 0:
        raise InputError("the batch is empty: give at least one row")
    tokens, lengths = _gather(features.boundaries, chosen)
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(len(tokens), dtype=np.int64) - np.repeat(starts, lengths)
    targets = {}
    if kind is not None:
        if features.labels is None:
            raise InputError("these rows have no labels; pass kind=None to predict")
        dtype = np.int64 if kind == "classification" else np.float32
        targets["labels"] = torch.from_numpy(features.labels[chosen].astype(dtype, copy=False))
    return Batch(
        input_ids=torch.from_numpy(features.input_ids[tokens].astype(np.int64)),
        token_type_ids=torch.from_numpy(features.token_type_ids[tokens].astype(np.int64)),
        position_ids=torch.from_numpy(positions),
        layout=Layout(tuple(lengths.tolist())),
        targets=targets,
    )


def token_budget_batches(
    lengths: npt.ArrayLike,
    *,
    max_tokens: int | None = None,
    max_sequences: int | None = None,
    seed: int | None = None,
    epoch: int = 0,
    window: int | None = None,
) -> list[list[int]]:
    """Split rows into batches; a pure function of its arguments, every row in exactly one batch.

    Args:
        lengths: tokens of each row, ``(B,)``.
        max_tokens: most tokens of a batch; None means no bound.
        max_sequences: most rows of a batch; None means no bound. ``max_sequences=32`` alone gives plain batches of 32,
            the last one with the rest.
        seed: shuffles the rows, another order each epoch; None keeps them in order.
        epoch: counted from 0; matters only with a seed.
        window: sort the rows by length inside windows of this many (after the shuffle), so that a batch holds rows of
            similar length, which attention kernels like; the batches are then shuffled. Without a seed the longest
            rows of a window come first, so that memory runs out at once or not at all.

    Raises:
        ConfigError: neither bound given, or a bound below 1.
        InputError: a row longer than ``max_tokens``.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    _check_bounds(sizes, max_tokens, max_sequences, window)
    generator = None if seed is None else np.random.Generator(np.random.PCG64([seed, epoch]))
    order = np.arange(len(sizes)) if generator is None else generator.permutation(len(sizes))
    if window is not None:
        parts = [order[start : start + window] for start in range(0, len(order), window)]
        order = np.concatenate([part[np.argsort(-sizes[part], kind="stable")] for part in parts] or [order])
    batches = _cut(order, sizes, max_tokens, max_sequences)
    if generator is not None and window is not None:
        batches = [batches[place] for place in generator.permutation(len(batches))]
    return batches


def _cut(order: Ints, sizes: Ints, max_tokens: int | None, max_sequences: int | None) -> list[list[int]]:
    """Cut an order of rows into runs that keep within both bounds, each as long as possible."""
    ends = np.cumsum(sizes[order])
    most = len(order) if max_sequences is None else max_sequences
    cuts = [0]
    while cuts[-1] < len(order):
        start = cuts[-1]
        end = start + most
        if max_tokens is not None:
            used = int(ends[start - 1]) if start else 0
            end = min(end, int(np.searchsorted(ends, used + max_tokens, side="right")))
        cuts.append(min(end, len(order)))
    return [order[start:end].tolist() for start, end in pairwise(cuts)]


def _check_bounds(sizes: Ints, max_tokens: int | None, max_sequences: int | None, window: int | None) -> None:
    if max_tokens is None and max_sequences is None:
        raise ConfigError("give max_tokens, max_sequences, or both")
    for name, bound in (("max_tokens", max_tokens), ("max_sequences", max_sequences), ("window", window)):
        if bound is not None and bound < 1:
            raise ConfigError(f"{name} must be at least 1, got {bound}")
    if max_tokens is not None and len(sizes) and sizes.max() > max_tokens:
        row = int(sizes.argmax())
        raise InputError(f"row {row} has {sizes[row]} tokens, more than max_tokens={max_tokens}; raise it or truncate")


def _gather(boundaries: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Flat places of all tokens of some rows, ``(T',)``, and the rows' lengths, ``(B',)``."""
    starts = boundaries[rows]
    lengths = boundaries[rows + 1] - starts
    shift = starts - (np.cumsum(lengths) - lengths)
    places: Ints = np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(shift, lengths)
    return places, lengths


def _keep_head_and_tail(features: FeatureSet, limit: int) -> FeatureSet:
    lengths = features.lengths
    pieces = limit - 2
    head = max(1, round(pieces * HEAD_OF_510 / 510)) if pieces > 1 else 1
    starts = features.boundaries[:-1]
    place = np.arange(len(features.input_ids), dtype=np.int64) - np.repeat(starts, lengths)
    from_end = np.repeat(lengths, lengths) - place
    keep = (np.repeat(lengths, lengths) <= limit) | (place < 1 + head) | (from_end <= limit - 1 - head)
    boundaries = np.concatenate([[0], np.cumsum(np.minimum(lengths, limit))]).astype(np.int64)
    return FeatureSet(features.input_ids[keep], features.token_type_ids[keep], boundaries, features.num_tokens)


def _check_lengths(num_tokens: Ints, limit: int) -> None:
    long = np.flatnonzero(num_tokens > limit)
    if len(long):
        shown = shorten((f"text {row}: {num_tokens[row]}" for row in long.tolist()), limit=3)
        raise InputError(
            f"{len(long):,} of {len(num_tokens):,} texts have more than {limit} tokens ({shown}). "
            "Shorten them, or allow truncation (truncation='longest_first')"
        )
