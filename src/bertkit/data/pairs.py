"""Which spans of the token store are the examples of an epoch: decided anew each epoch, for all documents at once.

The readable rules are those of section A.2 of the BERT paper (Devlin et al. 2018), as its authors' code has them: a
*chunk* is the next sentences of a document until a target length is reached; the first few of them are segment A, the
rest is segment B, or B comes from elsewhere and the rest goes back. Chunks of one document follow from each other, but
documents do not, so the n-th chunk of every document is made together ("in lockstep"), one numpy call for all.

Every choice is drawn at the place in the corpus where the chunk begins (:mod:`bertkit.data.draws`), which no two
examples of an epoch share.

Deviations from the original code, each for a reason:

* A pair that is too long loses the front of A and the end of B, never the inner ends (the original: front or end by
  chance). So a true pair is always contiguous, and where a segment was cut tells nothing about the label.
* Two documents are never taken for different ones: a random B is never from the document of A (the original tries
  ten times, then gives up).
* A document of more than ``LANE`` sentences is worked on in parts, and no example crosses from one into the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from bertkit.data.draws import Int64, below, bits, stream, uniform
from bertkit.errors import ConfigError, DataError, did_you_mean

#: ``mlm+nsp``: pairs, B follows A or is from another document (BERT). ``mlm``: one segment of whole sentences that may
#: run on into the next document (RoBERTa's FULL-SENTENCES). ``mlm+sop``: A and B in their order or swapped (ALBERT).
Objective = Literal["mlm+nsp", "mlm", "mlm+sop"]

#: Sentences of a document that are worked on one after another. Bounds the rounds that one long document causes.
LANE = 4096

#: Special tokens of an example: [CLS] and a [SEP] after each segment.
_NUM_SPECIAL = {"mlm+nsp": 3, "mlm": 2, "mlm+sop": 3}


class SentenceTokens(Protocol):
    """A corpus as token ids, without special tokens: what :class:`bertkit.data.store.TokenStore` offers.

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
        """Read the boundaries of a store.

        Raises:
            DataError: the store has no token.
        """
        offsets = np.asarray(tokens.sentence_boundaries, np.int64)
        bounds = np.unique(offsets)
        if len(bounds) < 2:
            raise DataError("the token store has no token at all; prepare it again from a corpus with text")
        document_offsets = np.unique(offsets[np.asarray(tokens.document_boundaries, np.int64)])
        return cls(bounds, np.searchsorted(bounds, document_offsets))

    @property
    def document_offsets(self) -> Int64:
        """Token offsets of the documents, int64 ``(D + 1,)``."""
        return self.bounds[self.documents]

    def document_of(self) -> Int64:
        """Document number of each sentence, int64 ``(K,)``."""
        return np.repeat(np.arange(len(self.documents) - 1), np.diff(self.documents))


@dataclass(frozen=True, slots=True)
class ExampleIndex:
    """The N examples of an epoch, in the order in which they are seen.

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

    def take(self, order: Int64) -> ExampleIndex:
        """The examples with the given numbers."""
        return ExampleIndex(*(getattr(self, name)[order] for name in self.__slots__))


def build_index(
    sentences: Sentences,
    *,
    objective: Objective,
    max_seq_length: int,
    short_seq_prob: float = 0.1,
    seed: int = 0,
    epoch: int = 0,
) -> ExampleIndex:
    """The examples of an epoch, shuffled: a pure function of its arguments.

    Every sentence is in the first segment, or the true second one, of one example; a random second segment comes on
    top. Sentences at the outer ends of a pair that is too long may be cut off.

    Args:
        sentences: the corpus.
        objective: see :data:`Objective`.
        max_seq_length: most tokens of an example, special ones included.
        short_seq_prob: how often a target length is drawn from 2 ... maximum instead of being the maximum. RoBERTa
            has 0.
        seed: fixes all choices, together with the epoch.
        epoch: counted from 0.

    Raises:
        ConfigError: an unknown objective, too small a length, a probability outside 0 ... 1.
        DataError: ``mlm+nsp`` from fewer than two documents; no example at all.
    """
    room = _checked_room(objective, max_seq_length, short_seq_prob)
    target = _Target(room, short_seq_prob, seed, epoch)
    if objective == "mlm":
        index, places = _full_sentences(sentences, target)
    else:
        if objective == "mlm+nsp" and len(sentences.documents) < 3:
            raise DataError(
                "objective 'mlm+nsp' needs at least 2 documents with text, for a random next sentence is from another "
                "document, and the token store has 1. Separate documents by blank lines, or use 'mlm' or 'mlm+sop'"
            )
        chunks = _chunks(sentences, target, put_back=objective == "mlm+nsp", seed=seed, epoch=epoch)
        make = _next_sentence if objective == "mlm+nsp" else _sentence_order
        index, places = make(sentences, chunks, room, seed, epoch)
    if len(index) == 0:
        raise DataError(f"the token store is too small for one example of objective {objective!r}")
    return index.take(np.argsort(bits(stream(seed, "shuffle", epoch), places), kind="stable"))


def _checked_room(objective: str, max_seq_length: int, short_seq_prob: float) -> int:
    """Most tokens of the corpus in an example."""
    if objective not in _NUM_SPECIAL:
        known = get_args(Objective)
        raise ConfigError(
            f"objective must be one of {', '.join(known)}, got {objective!r}{did_you_mean(objective, known)}"
        )
    special = _NUM_SPECIAL[objective]
    if max_seq_length < special + 2:
        raise ConfigError(
            f"max_seq_length={max_seq_length} is too small: objective {objective!r} adds {special} special tokens and "
            f"needs room for 2 more, so at least {special + 2}; the paper has 128, then 512"
        )
    if not 0 <= short_seq_prob <= 1:
        raise ConfigError(f"short_seq_prob must be from 0 to 1, got {short_seq_prob}")
    return max_seq_length - special


class _Target:
    """How many tokens an example is to have, drawn at the place where it begins."""

    def __init__(self, room: int, short_seq_prob: float, seed: int, epoch: int) -> None:
        self.room = room
        self.short_seq_prob = short_seq_prob
        self.keys = stream(seed, "short", epoch), stream(seed, "target", epoch)

    def __call__(self, places: Int64) -> Int64:
        short = uniform(self.keys[0], places) < self.short_seq_prob
        return np.where(short, 2 + below(self.keys[1], places, self.room - 1), self.room)


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Chunk n has the sentences ``start[n]`` to ``stop[n]``, A those before ``split[n]``: int64 ``(N,)`` each.

    target: tokens it was to have. document: number of its document. is_random: bool, B comes from elsewhere.
    """

    start: Int64
    split: Int64
    stop: Int64
    target: Int64
    document: Int64
    is_random: NDArray[np.bool_]


def _chunks(sentences: Sentences, target: _Target, *, put_back: bool, seed: int, epoch: int) -> _Chunks:
    """Cut every document into chunks. With ``put_back``, half of the chunks have a random B and give theirs back."""
    random_key, split_key = stream(seed, "random", epoch), stream(seed, "split", epoch)
    start, end, document = _lanes(sentences)
    bounds = sentences.bounds
    rounds: list[tuple[NDArray[Any], ...]] = []
    while len(start):
        wanted = target(start)
        stop = np.searchsorted(bounds, bounds[start] + wanted, side="left")  # first sentence end that is far enough
        stop = np.minimum(stop, end)
        split = start + 1 + below(split_key, start, np.maximum(stop - start - 1, 1))
        lone = stop - start == 1
        is_random = lone | (uniform(random_key, start) < 0.5) if put_back else np.zeros(len(start), bool)
        rounds.append((start, split, stop, wanted, document, is_random))
        start = np.where(is_random, split, stop)
        more = start < end
        start, end, document = start[more], end[more], document[more]
    return _Chunks(*(np.concatenate(column) for column in zip(*rounds, strict=True)))


def _lanes(sentences: Sentences) -> tuple[Int64, Int64, Int64]:
    """First sentence, end and document of each stretch that is worked on by itself."""
    counts = np.diff(sentences.documents)
    parts = -(-counts // LANE)
    document = np.repeat(np.arange(len(counts)), parts)
    part = np.arange(len(document)) - np.repeat(np.cumsum(parts) - parts, parts)
    start = sentences.documents[document] + part * LANE
    return start, np.minimum(start + LANE, sentences.documents[document + 1]), document


def _next_sentence(
    sentences: Sentences, chunks: _Chunks, room: int, seed: int, epoch: int
) -> tuple[ExampleIndex, Int64]:
    bounds, documents = sentences.bounds, sentences.documents
    first_start, first_end = bounds[chunks.start], bounds[chunks.split]
    # A random second segment: another document, any of its sentences, and on until the target is reached.
    other = below(stream(seed, "other", epoch), chunks.start, len(documents) - 2)
    other += other >= chunks.document
    begin = documents[other] + below(stream(seed, "begin", epoch), chunks.start, np.diff(documents)[other])
    missing = np.maximum(chunks.target - (first_end - first_start), 1)
    end = np.minimum(np.searchsorted(bounds, bounds[begin] + missing, side="left"), documents[other + 1])
    second_start = np.where(chunks.is_random, bounds[begin], first_end)
    second_end = np.where(chunks.is_random, bounds[end], bounds[chunks.stop])
    index = _cut_pairs(first_start, first_end, second_start, second_end, room, chunks.is_random)
    return index, first_start


def _sentence_order(
    sentences: Sentences, chunks: _Chunks, room: int, seed: int, epoch: int
) -> tuple[ExampleIndex, Int64]:
    """Pairs of ALBERT (Lan et al. 2019, section 3.1). A chunk of one sentence is cut in two inside; one of one token
    cannot be, and is left out.
    """
    start, middle, end = (sentences.bounds[at] for at in (chunks.start, chunks.split, chunks.stop))
    inside = start + 1 + below(stream(seed, "inside", epoch), chunks.start, np.maximum(end - start - 1, 1))
    middle = np.where(middle == end, inside, middle)
    usable = middle < end
    start, middle, end = start[usable], middle[usable], end[usable]
    swapped = uniform(stream(seed, "swap", epoch), chunks.start[usable]) < 0.5
    index = _cut_pairs(start, middle, middle, end, room, swapped)
    turned = ExampleIndex(
        first_start=np.where(swapped, index.second_start, index.first_start),
        first_length=np.where(swapped, index.second_length, index.first_length),
        second_start=np.where(swapped, index.first_start, index.second_start),
        second_length=np.where(swapped, index.first_length, index.second_length),
        num_separators=index.num_separators,
        label=index.label,
    )
    return turned, start


def _cut_pairs(
    first_start: Int64, first_end: Int64, second_start: Int64, second_end: Int64, room: int, label: NDArray[np.bool_]
) -> ExampleIndex:
    """Shorten the longer segment, then both, to ``room`` tokens in all; the inner ends stay."""
    first, second = first_end - first_start, second_end - second_start
    kept_second = np.where(first + second > room, np.minimum(second, np.maximum(room - first, room // 2)), second)
    kept_first = np.minimum(first, room - kept_second)
    return ExampleIndex(
        first_start=first_end - kept_first,
        first_length=kept_first.astype(np.int32),
        second_start=second_start,
        second_length=kept_second.astype(np.int32),
        num_separators=np.full(len(first), 2, np.int32),
        label=label.astype(np.int8),
    )


def _full_sentences(sentences: Sentences, target: _Target) -> tuple[ExampleIndex, Int64]:
    """Segments of whole sentences with a [SEP] between documents (Liu et al. 2019, section 4.2, FULL-SENTENCES).

    A sentence that is longer than a segment is cut into several; no token is lost.
    """
    bounds, document_of = sentences.bounds, sentences.document_of()
    cost = bounds[1:] + document_of  # what lies before a sentence's end: tokens, and a [SEP] for each document
    sentence = np.arange(0, len(document_of), LANE)
    lane_end = np.minimum(sentence + LANE, len(document_of))
    start = bounds[sentence]
    rounds: list[tuple[Int64, Int64, Int64]] = []
    while len(start):
        wanted = target(start)
        document = document_of[sentence]
        last = np.searchsorted(cost, start + document + wanted, side="right") - 1
        last = np.minimum(last, lane_end - 1)
        whole = last >= sentence
        end = np.where(whole, bounds[last + 1], start + wanted)
        rounds.append((start, end - start, 1 + np.where(whole, document_of[last] - document, 0)))
        sentence = np.where(whole, last + 1, sentence)
        more = sentence < lane_end
        start, sentence, lane_end = end[more], sentence[more], lane_end[more]
    starts, lengths, separators = (np.concatenate(column) for column in zip(*rounds, strict=True))
    nothing = np.zeros(len(starts), np.int32)
    index = ExampleIndex(
        first_start=starts,
        first_length=lengths.astype(np.int32),
        second_start=starts + lengths,
        second_length=nothing,
        num_separators=separators.astype(np.int32),
        label=nothing.astype(np.int8),
    )
    return index, starts
