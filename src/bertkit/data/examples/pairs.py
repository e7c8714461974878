"""Which spans of the token store make up an example: pure functions of the position where the example begins.

The rules are those of section A.2 of the BERT paper (Devlin et al. 2018), as in its authors' code: a *chunk* is the
next sentences of a document until a target length is reached; the first few are segment A, the rest is segment B, or B
comes from elsewhere and the rest is used again. A chunk depends on the one before it in the same document, but
documents are independent, so the n-th chunks of all documents are found together, in one numpy call.

Every choice is drawn (:mod:`bertkit.data.counter_random`) at the number of the sentence where a chunk begins; without
pairs, and for the order of an epoch, at its token offset. No two examples of an epoch share either. So the position
alone identifies an example: :func:`places_from` finds all positions, once per epoch, and :func:`examples_at` the
examples there.

Deviations from the original code:

* A pair that is too long loses the front of A and the end of B, never the inner ends (the original: front or end at
  random). So a true pair is always contiguous, and where a segment was cut says nothing about the label; A and B of a
  swapped pair are the first and the second segment of the example.
* A random B is never from the document of A (the original tries ten times, then gives up).
* A document of more than ``LANE`` sentences is processed in parts, and no example spans two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from bertkit.data.counter_random import below, stream, uniform
from bertkit.data.examples.masking import Masking
from bertkit.errors import ConfigError, DataError, did_you_mean
from bertkit.ragged import Flags, Ids, Ints

#: ``mlm+nsp``: pairs, B follows A or is from another document (BERT). ``mlm``: one segment of whole sentences that may
#: continue into the next document (RoBERTa's FULL-SENTENCES). ``mlm+sop``: A and B in order or swapped (ALBERT).
#: ``next-word``, ``previous-word``: the segments of ``mlm``, unchanged, for models that read one way (GPT).
Objective = Literal["mlm+nsp", "mlm", "mlm+sop", "next-word", "previous-word"]

#: Maximum sentences processed one after another; bounds the rounds that one long document causes.
LANE = 4096

#: Special tokens of an example: [CLS] and a [SEP] after each segment.
_NUM_SPECIAL: dict[str, int] = {"mlm+nsp": 3, "mlm": 2, "mlm+sop": 3, "next-word": 2, "previous-word": 2}


class SentenceTokens(Protocol):
    """A corpus as token ids without special tokens, such as :class:`bertkit.data.store.token_store.TokenStore`.

    sentence_boundaries: int64 ``(num_sentences + 1,)``, token offsets; no sentence is empty. document_boundaries: int64
    ``(num_documents + 1,)``, sentence numbers; no document is empty.
    """

    @property
    def sentence_boundaries(self) -> Ints: ...

    @property
    def document_boundaries(self) -> Ints: ...

    def tokens(self, first_sentence: int, end_sentence: int) -> Ids:
        """Ids of consecutive sentences, possibly of several documents."""
        ...


@dataclass(frozen=True, slots=True)
class Sentences:
    """Token offsets of K sentences, int64 ``(K + 1,)``, and sentence numbers of D documents, int64 ``(D + 1,)``."""

    bounds: Ints
    documents: Ints

    @classmethod
    def of(cls, tokens: SentenceTokens) -> Sentences:
        """The boundaries of a store, not copied; DataError if it has no token."""
        found = cls(tokens.sentence_boundaries, tokens.document_boundaries)
        if len(found.bounds) < 2:
            raise DataError("the token store has no token at all; prepare it again from a corpus with text")
        return found

    def document_of(self, sentences: Ints) -> Ints:
        """Number of the document of each given sentence: int64 ``(N,)``."""
        return np.searchsorted(self.documents, sentences, side="right") - 1

    def document_start(self, documents: Ints) -> Ints:
        """Token offset where each given document begins (for D: where the last ends): int64 ``(N,)``."""
        return self.bounds[self.documents[documents]]


@dataclass(frozen=True, slots=True)
class ExampleSpans:
    """The spans of N examples.

    first_start, second_start: int64 ``(N,)``, token offset where a segment begins.
    first_length, second_length: int32 ``(N,)``, number of its tokens; without pairs the second has none,
        and the first may continue over several documents.
    num_separators: int32 ``(N,)``, number of [SEP]: one after each segment, or after each document's part.
    label: int8 ``(N,)``, 0 = B follows A, 1 = it does not (a random B, or A and B swapped); always 0 without pairs.
    """

    first_start: Ints
    first_length: NDArray[np.int32]
    second_start: Ints
    second_length: NDArray[np.int32]
    num_separators: NDArray[np.int32]
    label: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.first_start)

    @property
    def lengths(self) -> Ints:
        """Tokens of each example, special ones included: int64 ``(N,)``."""
        return 1 + self.first_length.astype(np.int64) + self.second_length + self.num_separators

    def take(self, order: Ints) -> ExampleSpans:
        """The examples with the given numbers."""
        return ExampleSpans(*(getattr(self, name)[order] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Rules:
    """How the examples of an epoch are made; a share ``short_seq_prob`` has a target length from 2 to the maximum."""

    objective: Objective = "mlm+nsp"
    max_seq_length: int = 128
    short_seq_prob: float = 0.1
    seed: int = 0
    epoch: int = 0
    masking: Masking = field(default_factory=Masking)

    def __post_init__(self) -> None:
        if self.objective not in _NUM_SPECIAL:
            near = did_you_mean(self.objective, _NUM_SPECIAL)
            raise ConfigError(f"objective must be one of {', '.join(_NUM_SPECIAL)}, got {self.objective!r}{near}")
        special = _NUM_SPECIAL[self.objective]
        if self.max_seq_length < special + 2:
            raise ConfigError(
                f"max_seq_length={self.max_seq_length} is too small: objective {self.objective!r} adds {special} "
                f"special tokens and needs room for 2 more, so at least {special + 2}; the paper has 128, then 512"
            )
        if not 0 <= self.short_seq_prob <= 1:
            raise ConfigError(f"short_seq_prob must be from 0 to 1, got {self.short_seq_prob}")

    @property
    def has_pairs(self) -> bool:
        """Whether examples have two segments and a label."""
        return self.objective in ("mlm+nsp", "mlm+sop")

    @property
    def room(self) -> int:
        """Maximum tokens of the corpus in an example."""
        return self.max_seq_length - _NUM_SPECIAL[self.objective]

    def key(self, name: str) -> int:
        """Key of one of the epoch's random streams."""
        return stream(self.seed, name, self.epoch)

    def target(self, places: Ints) -> Ints:
        """Target lengths of the examples that begin at ``places``: int64 ``(N,)``.

        ``places`` are sentence numbers with pairs, otherwise token offsets.
        """
        short = uniform(self.key("short"), places) < self.short_seq_prob
        return np.where(short, 2 + below(self.key("target"), places, self.room - 1), self.room)


def stretches(sentences: Sentences, rules: Rules, at_once: int) -> Iterator[tuple[Ints, Ints]]:
    """Stretches of sentences that contain whole examples, some at a time: first and end, int64 ``(L,)`` each."""
    if not rules.has_pairs:
        num_sentences = len(sentences.bounds) - 1
        for first in range(0, num_sentences, at_once * LANE):
            start = np.arange(first, min(first + at_once * LANE, num_sentences), LANE)
            yield start, np.minimum(start + LANE, num_sentences)
        return
    for first in range(0, len(sentences.documents) - 1, at_once):
        documents = sentences.documents[first : first + at_once + 1]
        counts = np.diff(documents)
        parts = -(-counts // LANE)
        document = np.repeat(np.arange(len(counts)), parts)
        part = np.arange(len(document)) - np.repeat(np.cumsum(parts) - parts, parts)
        start = documents[document] + part * LANE
        yield start, np.minimum(start + LANE, documents[document + 1])


def places_from(sentences: Sentences, rules: Rules, start: Ints, stop: Ints) -> Iterator[Ints]:
    """Token offsets where the examples of some stretches begin; the n-th of all stretches together."""
    bounds = sentences.bounds
    if not rules.has_pairs:
        place = bounds[start]
        while len(start):
            yield place
            place, start, _ = _segments(sentences, rules, place, start, stop)
            more = start < stop
            place, start, stop = place[more], start[more], stop[more]
        return
    while len(start):
        chunks = _chunks(sentences, rules, start, stop)
        place = bounds[start]
        if rules.objective == "mlm+sop":  # one token cannot be split in two
            place = place[bounds[chunks.stop] - place > 1]
        yield place
        start = np.where(chunks.is_random, chunks.split, chunks.stop)
        more = start < stop
        start, stop = start[more], stop[more]


def examples_at(sentences: Sentences, rules: Rules, places: Ints) -> ExampleSpans:
    """The examples that begin at ``places``, which are from :func:`places_from`, in any order."""
    bounds, documents = sentences.bounds, sentences.documents
    if not rules.has_pairs:
        sentence = np.searchsorted(bounds, places, side="right") - 1
        stop = np.minimum((sentence // LANE + 1) * LANE, len(bounds) - 1)
        end, _, separators = _segments(sentences, rules, places, sentence, stop)
        nothing = np.zeros(len(places), np.int32)
        lengths, num_separators = (end - places).astype(np.int32), separators.astype(np.int32)
        return ExampleSpans(places, lengths, end, nothing, num_separators, nothing.astype(np.int8))
    start = np.searchsorted(bounds, places)
    document = sentences.document_of(start)
    begin = documents[document]
    stop = np.minimum(begin + ((start - begin) // LANE + 1) * LANE, documents[document + 1])
    chunks = _chunks(sentences, rules, start, stop)
    if rules.objective == "mlm+nsp":
        return _next_sentence(sentences, rules, chunks, document)
    return _sentence_order(sentences, rules, chunks)


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Chunk n has the sentences ``start[n] : stop[n]``, of which A has those before ``split[n]``: int64 ``(N,)`` each.

    target: its target length. is_random: bool, B comes from elsewhere, and the rest of the chunk is used again.
    """

    start: Ints
    split: Ints
    stop: Ints
    target: Ints
    is_random: Flags


def _chunks(sentences: Sentences, rules: Rules, start: Ints, stop: Ints) -> _Chunks:
    """The chunks that begin with the sentences ``start`` and end before the sentences ``stop`` at the latest."""
    bounds = sentences.bounds
    wanted = rules.target(start)
    end = _far_enough(bounds, start, wanted, stop)
    split = start + 1 + below(rules.key("split"), start, np.maximum(end - start - 1, 1))
    is_random = np.zeros(len(start), bool)
    if rules.objective == "mlm+nsp":
        is_random = (end - start == 1) | (uniform(rules.key("random"), start) < 0.5)
    return _Chunks(start, split, end, wanted, is_random)


def _far_enough(bounds: Ints, start: Ints, wanted: Ints, stop: Ints) -> Ints:
    """The first sentence boundaries after ``start`` with ``wanted`` tokens in between, at most ``stop``."""
    return np.minimum(_last_within(bounds, start, stop, bounds[start] + wanted - 1) + 1, stop)


def _last_within(bounds: Ints, start: Ints, stop: Ints, goal: Ints) -> Ints:
    """The last of the boundaries ``start`` to ``stop`` that is at most ``goal``, searched from ``start`` on."""
    low = start
    high = np.minimum(stop, start + (goal - bounds[start]))  # a sentence has at least one token
    while (low < high).any():
        middle = (low + high + 1) >> 1
        fits = bounds[middle] <= goal
        low, high = np.where(fits, middle, low), np.where(fits, high, np.maximum(middle - 1, low))
    return low


def _next_sentence(sentences: Sentences, rules: Rules, chunks: _Chunks, document: Ints) -> ExampleSpans:
    """Pairs as in the paper; ``document`` is that of each chunk."""
    bounds, documents = sentences.bounds, sentences.documents
    first_start, first_end = bounds[chunks.start], bounds[chunks.split]
    # A random second segment: from any sentence of another document until the target is reached.
    other = below(rules.key("other"), chunks.start, len(documents) - 2)
    other += other >= document
    size = documents[other + 1] - documents[other]
    begin = documents[other] + below(rules.key("begin"), chunks.start, size)
    missing = np.maximum(chunks.target - (first_end - first_start), 1)
    end = _far_enough(bounds, begin, missing, documents[other + 1])
    second_start = np.where(chunks.is_random, bounds[begin], first_end)
    second_end = np.where(chunks.is_random, bounds[end], bounds[chunks.stop])
    return _cut_pairs(first_start, first_end, second_start, second_end, rules.room, chunks.is_random)


def _sentence_order(sentences: Sentences, rules: Rules, chunks: _Chunks) -> ExampleSpans:
    """Pairs as in ALBERT (Lan et al. 2019, section 3.1). A chunk of one sentence is split inside it."""
    start, middle, end = (sentences.bounds[at] for at in (chunks.start, chunks.split, chunks.stop))
    inside = start + 1 + below(rules.key("inside"), chunks.start, np.maximum(end - start - 1, 1))
    middle = np.where(middle == end, inside, middle)
    swapped = uniform(rules.key("swap"), chunks.start) < 0.5
    # Swapped before they are cut: cuts at other ends of a swapped pair would tell its label.
    first_start, first_end = np.where(swapped, middle, start), np.where(swapped, end, middle)
    second_start, second_end = np.where(swapped, start, middle), np.where(swapped, middle, end)
    return _cut_pairs(first_start, first_end, second_start, second_end, rules.room, swapped)


def _cut_pairs(
    first_start: Ints, first_end: Ints, second_start: Ints, second_end: Ints, room: int, label: Flags
) -> ExampleSpans:
    """Shorten the longer segment, then both, to ``room`` tokens together, never at the inner ends."""
    first, second = first_end - first_start, second_end - second_start
    kept_second = np.where(first + second > room, np.minimum(second, np.maximum(room - first, room // 2)), second)
    kept_first = np.minimum(first, room - kept_second)
    return ExampleSpans(
        first_start=first_end - kept_first,
        first_length=kept_first.astype(np.int32),
        second_start=second_start,
        second_length=kept_second.astype(np.int32),
        num_separators=np.full(len(first), 2, np.int32),
        label=label.astype(np.int8),
    )


def _segments(sentences: Sentences, rules: Rules, start: Ints, sentence: Ints, stop: Ints) -> tuple[Ints, Ints, Ints]:
    """Segments of whole sentences with a [SEP] between documents (Liu et al. 2019, section 4.2, FULL-SENTENCES).

    A sentence longer than a segment is divided; no token is lost. Returns the token offset of each end, the sentence of
    that token, and the number of [SEP]; ``(N,)`` each.
    """
    bounds = sentences.bounds
    wanted = rules.target(start)
    document = sentences.document_of(sentence)
    # As many sentences as fit; then one less for as long as the [SEP] between documents do not fit.
    last = _last_within(bounds, sentence, stop, start + wanted) - 1
    whole = last >= sentence
    crossed = np.zeros(len(start), np.int64)
    active = np.flatnonzero(whole)
    while len(active):
        crossed[active] = sentences.document_of(last[active]) - document[active]
        active = active[bounds[last[active] + 1] - start[active] + crossed[active] > wanted[active]]
        last[active] -= 1
    end = np.where(whole, bounds[last + 1], start + wanted)
    return end, np.where(whole, last + 1, sentence), 1 + crossed
