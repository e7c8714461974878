"""Which spans of the token store an example has: the rules, as pure functions of the place where an example begins.

The readable rules are those of section A.2 of the BERT paper (Devlin et al. 2018), as its authors' code has them: a
*chunk* is the next sentences of a document until a target length is reached; the first few of them are segment A, the
rest is segment B, or B comes from elsewhere and the rest goes back. Chunks of one document follow from each other, but
documents do not, so the n-th chunk of every document is found together ("in lockstep"), one numpy call for all.

Every choice is drawn at the place in the corpus where the chunk begins (:mod:`bertkit.data.examples.counter_random`),
which no two
examples of an epoch share. So an example is told by its place alone: :func:`places_from` walks over all of them, once
an epoch, and :func:`examples_at` says what the examples at some places are.

Deviations from the original code, each for a reason:

* A pair that is too long loses the front of A and the end of B, never the inner ends (the original: front or end by
  chance). So a true pair is always contiguous, and where a segment was cut tells nothing about the label.
* Two documents are never taken for different ones: a random B is never from the document of A (the original tries
  ten times, then gives up).
* A document of more than ``LANE`` sentences is worked on in parts, and no example crosses from one into the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from bertkit.data.examples.counter_random import Int64, below, stream, uniform
from bertkit.errors import ConfigError, DataError, did_you_mean

#: ``mlm+nsp``: pairs, B follows A or is from another document (BERT). ``mlm``: one segment of whole sentences that may
#: run on into the next document (RoBERTa's FULL-SENTENCES). ``mlm+sop``: A and B in their order or swapped (ALBERT).
Objective = Literal["mlm+nsp", "mlm", "mlm+sop"]

#: Sentences of a document that are worked on one after another. Bounds the rounds that one long document causes.
LANE = 4096

#: Special tokens of an example: [CLS] and a [SEP] after each segment.
_NUM_SPECIAL = {"mlm+nsp": 3, "mlm": 2, "mlm+sop": 3}
#: Numbers that are compared at a time.
_BLOCK = 1 << 20


class SentenceTokens(Protocol):
    """A corpus as token ids, without special tokens: what :class:`bertkit.data.store.token_store.TokenStore` offers.

    sentence_boundaries: int64 ``(num_sentences + 1,)``, token offsets.
    document_boundaries: int64 ``(num_documents + 1,)``; document d has the sentences from ``document_boundaries[d]``
        up to, not including, ``document_boundaries[d + 1]``.
    """

    @property
    def sentence_boundaries(self) -> NDArray[Any]: ...

    @property
    def document_boundaries(self) -> NDArray[Any]: ...

    def tokens(self, first_sentence: int, end_sentence: int) -> NDArray[Any]:
        """Ids of consecutive sentences, perhaps of several documents."""
        ...


@dataclass(frozen=True, slots=True)
class Sentences:
    """Where sentences and documents lie, without those that have no token.

    bounds: int64 ``(K + 1,)``, token offsets of K sentences.
    documents: int64 ``(D + 1,)``, sentence numbers.
    """

    bounds: Int64
    documents: Int64

    @classmethod
    def of(cls, tokens: SentenceTokens) -> Sentences:
        """Read the boundaries of a store. Where no sentence is empty, as in a token store, they are not copied.

        Raises:
            DataError: the store has no token.
        """
        offsets = np.asarray(tokens.sentence_boundaries, np.int64)
        documents = np.asarray(tokens.document_boundaries, np.int64)
        if not (_increases(offsets) and _increases(documents)):
            document_offsets = np.unique(offsets[documents])
            offsets = offsets[np.append(True, offsets[1:] > offsets[:-1])]
            documents = np.searchsorted(offsets, document_offsets)
        if len(offsets) < 2:
            raise DataError("the token store has no token at all; prepare it again from a corpus with text")
        return cls(offsets, documents)

    def document_of(self, sentences: Int64) -> Int64:
        """Number of the document that each of some sentences is in: int64 ``(N,)``."""
        return np.searchsorted(self.documents, sentences, side="right") - 1

    def document_start(self, documents: Int64) -> Int64:
        """Token offset where each of some documents begins (or, for D, where the last ends): int64 ``(N,)``."""
        return self.bounds[self.documents[documents]]


def _increases(numbers: Int64) -> bool:
    """Whether each number is larger than the one before, seen in blocks: no second array of that size is made."""
    return all(
        bool((numbers[at + 1 : at + _BLOCK + 1] > numbers[at : at + _BLOCK][: len(numbers) - at - 1]).all())
        for at in range(0, len(numbers), _BLOCK)
    )


@dataclass(frozen=True, slots=True)
class ExampleSpans:
    """What N examples are made of.

    first_start, second_start: int64 ``(N,)``, token offset where a segment begins.
    first_length, second_length: int32 ``(N,)``, its tokens; an example of the objective ``mlm`` has no second segment
        (length 0), and its first may run over several documents.
    num_separators: int32 ``(N,)``, how many [SEP] it has: one after each segment, or after each document's part.
    label: int8 ``(N,)``, 0 = B follows A, 1 = it does not (a random B, or A and B swapped); 0 throughout for ``mlm``.
    """

    first_start: Int64
    first_length: NDArray[np.int32]
    second_start: Int64
    second_length: NDArray[np.int32]
    num_separators: NDArray[np.int32]
    label: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.first_start)

    @property
    def lengths(self) -> Int64:
        """Tokens of each example, special ones included: int64 ``(N,)``."""
        return 1 + self.first_length.astype(np.int64) + self.second_length + self.num_separators

    def take(self, order: Int64) -> ExampleSpans:
        """The examples with the given numbers."""
        return ExampleSpans(*(getattr(self, name)[order] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Rules:
    """How the examples of one epoch are cut; see :func:`bertkit.data.examples.example_index.build_index`.

    room: most tokens of the corpus in an example.
    """

    objective: Objective
    room: int
    short_seq_prob: float
    seed: int
    epoch: int

    @classmethod
    def of(cls, objective: Objective, max_seq_length: int, short_seq_prob: float, seed: int, epoch: int) -> Rules:
        """Check the settings.

        Raises:
            ConfigError: an unknown objective, too small a length, a probability outside 0 ... 1.
        """
        if objective not in _NUM_SPECIAL:
            known = get_args(Objective)
            raise ConfigError(
                f"objective must be one of {', '.join(known)}, got {objective!r}{did_you_mean(objective, known)}"
            )
        special = _NUM_SPECIAL[objective]
        if max_seq_length < special + 2:
            raise ConfigError(
                f"max_seq_length={max_seq_length} is too small: objective {objective!r} adds {special} special tokens "
                f"and needs room for 2 more, so at least {special + 2}; the paper has 128, then 512"
            )
        if not 0 <= short_seq_prob <= 1:
            raise ConfigError(f"short_seq_prob must be from 0 to 1, got {short_seq_prob}")
        return cls(objective, max_seq_length - special, short_seq_prob, seed, epoch)

    def key(self, name: str) -> int:
        """Key of one of the epoch's streams of draws."""
        return stream(self.seed, name, self.epoch)

    def target(self, places: Int64) -> Int64:
        """How many tokens the examples are to have that begin at ``places``: int64 ``(N,)``."""
        short = uniform(self.key("short"), places) < self.short_seq_prob
        return np.where(short, 2 + below(self.key("target"), places, self.room - 1), self.room)


def stretches(sentences: Sentences, rules: Rules, at_once: int) -> Iterator[tuple[Int64, Int64]]:
    """Stretches of sentences that no example leaves, from the front, some of them together.

    Args:
        sentences: the corpus.
        rules: pairs stay within a document; a segment of ``mlm`` may run on into the next one.
        at_once: documents, or for ``mlm`` stretches, that are given out together.

    Yields:
        First sentence of each stretch and the one after its last: int64 ``(L,)`` each.
    """
    if rules.objective == "mlm":
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


def places_from(sentences: Sentences, rules: Rules, start: Int64, stop: Int64) -> Iterator[Int64]:
    """Token offsets where the examples of some stretches begin; the n-th of every stretch together."""
    bounds = sentences.bounds
    if rules.objective == "mlm":
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
        if rules.objective == "mlm+sop":  # one token cannot be cut in two
            place = place[bounds[chunks.stop] - place > 1]
        yield place
        start = np.where(chunks.is_random, chunks.split, chunks.stop)
        more = start < stop
        start, stop = start[more], stop[more]


def examples_at(sentences: Sentences, rules: Rules, places: Int64) -> ExampleSpans:
    """The examples that begin at ``places``, some of those that :func:`places_from` gave, in any order."""
    bounds, documents = sentences.bounds, sentences.documents
    if rules.objective == "mlm":
        sentence = np.searchsorted(bounds, places, side="right") - 1
        stop = np.minimum((sentence // LANE + 1) * LANE, len(bounds) - 1)
        end, _, separators = _segments(sentences, rules, places, sentence, stop)
        nothing = np.zeros(len(places), np.int32)
        return ExampleSpans(
            first_start=places,
            first_length=(end - places).astype(np.int32),
            second_start=end,
            second_length=nothing,
            num_separators=separators.astype(np.int32),
            label=nothing.astype(np.int8),
        )
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
    """Chunk n has the sentences ``start[n]`` to ``stop[n]``, A those before ``split[n]``: int64 ``(N,)`` each.

    target: tokens it was to have. is_random: bool, B comes from elsewhere, and the chunk's own is given back.
    """

    start: Int64
    split: Int64
    stop: Int64
    target: Int64
    is_random: NDArray[np.bool_]


def _chunks(sentences: Sentences, rules: Rules, start: Int64, stop: Int64) -> _Chunks:
    """The chunks that begin with the sentences ``start``, and end before the sentences ``stop`` at the latest."""
    bounds = sentences.bounds
    wanted = rules.target(start)
    end = _far_enough(bounds, start, wanted, stop)
    split = start + 1 + below(rules.key("split"), start, np.maximum(end - start - 1, 1))
    is_random = np.zeros(len(start), bool)
    if rules.objective == "mlm+nsp":
        is_random = (end - start == 1) | (uniform(rules.key("random"), start) < 0.5)
    return _Chunks(start, split, end, wanted, is_random)


def _far_enough(bounds: Int64, start: Int64, wanted: Int64, stop: Int64) -> Int64:
    """The first sentence boundaries after ``start`` with ``wanted`` tokens in between, at most ``stop``."""
    return np.minimum(_last_within(bounds, start, stop, bounds[start] + wanted - 1) + 1, stop)


def _last_within(bounds: Int64, start: Int64, stop: Int64, goal: Int64) -> Int64:
    """The last of the sentence boundaries ``start`` ... ``stop`` that is at most the token offset ``goal``.

    It is looked for near ``start``, which it is at least: a search in all boundaries would wait for memory 20 times.
    """
    low = start
    high = np.minimum(stop, start + (goal - bounds[start]))  # a sentence has at least one token
    while (low < high).any():
        middle = (low + high + 1) >> 1
        fits = bounds[middle] <= goal
        low, high = np.where(fits, middle, low), np.where(fits, high, np.maximum(middle - 1, low))
    return low


def _next_sentence(sentences: Sentences, rules: Rules, chunks: _Chunks, document: Int64) -> ExampleSpans:
    """Pairs of the paper; ``document`` is each chunk's own."""
    bounds, documents = sentences.bounds, sentences.documents
    first_start, first_end = bounds[chunks.start], bounds[chunks.split]
    # A random second segment: another document, any of its sentences, and on until the target is reached.
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
    """Pairs of ALBERT (Lan et al. 2019, section 3.1). A chunk of one sentence is cut in two inside."""
    start, middle, end = (sentences.bounds[at] for at in (chunks.start, chunks.split, chunks.stop))
    inside = start + 1 + below(rules.key("inside"), chunks.start, np.maximum(end - start - 1, 1))
    middle = np.where(middle == end, inside, middle)
    swapped = uniform(rules.key("swap"), chunks.start) < 0.5
    pairs = _cut_pairs(start, middle, middle, end, rules.room, swapped)
    return ExampleSpans(
        first_start=np.where(swapped, pairs.second_start, pairs.first_start),
        first_length=np.where(swapped, pairs.second_length, pairs.first_length),
        second_start=np.where(swapped, pairs.first_start, pairs.second_start),
        second_length=np.where(swapped, pairs.first_length, pairs.second_length),
        num_separators=pairs.num_separators,
        label=pairs.label,
    )


def _cut_pairs(
    first_start: Int64, first_end: Int64, second_start: Int64, second_end: Int64, room: int, label: NDArray[np.bool_]
) -> ExampleSpans:
    """Shorten the longer segment, then both, to ``room`` tokens in all; the inner ends stay."""
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


def _segments(
    sentences: Sentences, rules: Rules, start: Int64, sentence: Int64, stop: Int64
) -> tuple[Int64, Int64, Int64]:
    """Segments of whole sentences with a [SEP] between documents (Liu et al. 2019, section 4.2, FULL-SENTENCES).

    A sentence that is longer than a segment is cut into several; no token is lost.

    Args:
        sentences: the corpus.
        rules: of the epoch.
        start: token offsets where the segments begin.
        sentence: the sentences that these tokens are in.
        stop: the sentence before which each segment ends at the latest.

    Returns:
        Token offset of each segment's end, the sentence that this token is in, and the number of [SEP]; ``(N,)``.
    """
    bounds = sentences.bounds
    wanted = rules.target(start)
    document = sentences.document_of(sentence)
    # Most sentences that fit by their tokens; then one less as long as the [SEP] between documents have no room.
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
