"""Packed batches of pre-training examples, made on demand: a pure function of (seed, epoch, number).

Nothing is written to disk besides the token store, no example is seen twice in the same form, and any worker or process
can make any batch. The interface is described in :class:`bertkit.training.trainer.batch_plan.Plan`.

The content of an example follows from the position where it begins (:mod:`bertkit.data.examples.pairs`), so only the
positions are stored; the spans are computed again for each batch, in about 3 microseconds per example.

Memory for K sentences and N examples, and for Wikipedia and books (K = 162 million, N = 48 million pairs of 128 tokens;
measured with sentences of random lengths, 21 s on one core):

* :class:`~bertkit.data.examples.pairs.Sentences`: 8 K bytes = 1.3 GB, which belong to the store. If the store is larger
  than its cache, they are mapped from disk, once for all processes of the machine.
* :class:`ExampleIndex`: 4 N up to 2^32 tokens, otherwise 8 N = 0.4 GB per process; twice that at the end of an epoch.
* While it is built: 8 N more up to 2^32 tokens, otherwise 1 N; and about 100 bytes for each of
  :data:`DOCUMENTS_AT_ONCE` documents = 50 MB. The measured peak was 9 N = 0.44 GB in all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.batch import Batch, Layout, positions_of, split_by_budget
from bertkit.data.counter_random import UInt64, bits, counters_of, stream
from bertkit.data.examples.masking import MaskVocabulary, mask_rows
from bertkit.data.examples.pairs import (
    ExampleSpans,
    Rules,
    Sentences,
    SentenceTokens,
    examples_at,
    places_from,
    stretches,
)
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError, DataError
from bertkit.ragged import Flags, Ids, Ints, boundaries_of
from bertkit.system.console import Progress
from bertkit.system.fork_locks import ForkSafeLock

#: Documents processed together. Fewer need less memory while an index is built; far fewer need more time, because a
#: block with one long document takes as many rounds as that document has examples.
DOCUMENTS_AT_ONCE = 1 << 19
#: Numbers converted back into positions at a time.
_BLOCK = 1 << 20
#: Held while an index is built. Global, so that an instance can be pickled.
_building = ForkSafeLock()

#: Tokens of a micro-batch below which its size is not what memory goes for.
_FEWEST_TOKENS = 8
#: The objectives that predict a word from the token before or behind it, and how far that stands from the word.
NEIGHBOURS = {"next-word": -1, "previous-word": 1}
Places = NDArray[np.uint32 | np.int64]


class PlanOptions(TypedDict, total=False):
    """The options of :class:`ExamplePlan`."""

    batch_size: int
    max_tokens: int
    rank: int
    num_ranks: int


@dataclass(frozen=True, slots=True, eq=False)
class ExampleIndex:
    """The N examples of an epoch, shuffled: token offset of each ``(N,)``, int64 above 2^32 tokens, else uint32."""

    sentences: Sentences
    rules: Rules
    places: Places

    def __len__(self) -> int:
        return len(self.places)

    def take(self, numbers: Ints) -> ExampleSpans:
        """The spans of the examples with the given numbers."""
        places = self.places[numbers].astype(np.int64)
        order = np.argsort(places)  # neighbouring positions are found together
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return examples_at(self.sentences, self.rules, places[order]).take(back)


def build_index(
    sentences: Sentences, rules: Rules, *, documents_at_once: int = DOCUMENTS_AT_ONCE, name: str = "the token store"
) -> ExampleIndex:
    """The examples of an epoch, shuffled: a pure function of its arguments but for ``documents_at_once``, for memory.

    Every sentence is in the first segment, or the true second one, of one example; random second segments come on top.
    Sentences at the outer ends of a pair that is too long may be cut off.
    """
    if rules.objective == "mlm+nsp" and len(sentences.documents) < 3:
        raise DataError(
            "objective 'mlm+nsp' needs at least 2 documents with text, because a random next sentence comes from "
            f"another document, and {name} has 1. Separate documents by blank lines, or use 'mlm' or 'mlm+sop'"
        )
    # The order is that of a number drawn at each position. No two positions draw the same, so the sorted numbers can be
    # converted back into positions: neither these nor a permutation need to be stored as well.
    key = rules.key("shuffle")
    order: UInt64 = np.empty(1 << 12, np.uint64)
    count = 0
    with Progress(len(sentences.bounds) - 1, label=f"examples of epoch {rules.epoch}", unit="sentences") as shown:
        for start, stop in stretches(sentences, rules, documents_at_once):
            for places in places_from(sentences, rules, start, stop):
                end = count + len(places)
                if end > len(order):  # in place, without a copy, and at most an eighth too large
                    order.resize(max(end, len(order) * 9 // 8), refcheck=False)
                order[count:end] = bits(key, places)
                count = end
            shown.advance(int(stop[-1] - start[0]))
    order.resize(count, refcheck=False)
    if len(order) == 0:
        raise DataError(f"{name} is too small for one example of objective {rules.objective!r}")
    order.sort()
    # Back to positions, block by block; those of a very large corpus overwrite the numbers.
    is_small = sentences.bounds[-1] <= 1 << 32
    found: Places = np.empty(len(order), np.uint32) if is_small else order.view(np.int64)
    for at in range(0, len(order), _BLOCK):
        found[at : at + _BLOCK] = counters_of(key, order[at : at + _BLOCK])
    return ExampleIndex(sentences, rules, found)


class ExamplePlan(ABC):
    """A batch plan of examples made from a token store; :meth:`pack` makes a batch of some of them.

    Epochs differ by a few examples, because chunks are drawn anew. ``steps_per_epoch`` is that of epoch 0; the examples
    of any epoch are distributed evenly over its steps, so each is seen once and a step has about ``batch_size``.

    batch_size: examples in an optimizer step, over all ranks. max_tokens: tokens in one micro-batch at most.
    """

    unit = "tokens"

    def __init__(
        self,
        tokens: SentenceTokens,
        rules: Rules,
        *,
        batch_size: int = 256,
        max_tokens: int = 8192,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        if batch_size < num_ranks or num_ranks < 1 or not 0 <= rank < num_ranks:
            raise ConfigError(
                f"batch_size={batch_size}, rank={rank}, num_ranks={num_ranks}: every rank needs at least one example "
                "of a step, and ranks count from 0"
            )
        if max_tokens < rules.max_seq_length:
            raise ConfigError(
                f"max_tokens={max_tokens} of a micro-batch is less than max_seq_length={rules.max_seq_length}; raise it"
            )
        self.tokens, self.rules = tokens, rules
        self.batch_size, self.max_tokens = batch_size, max_tokens
        self.rank, self.num_ranks = rank, num_ranks
        if isinstance(tokens, TokenStore):
            tokens.make_random_access()
        self._sentences = Sentences.of(tokens)
        self._latest: dict[int, ExampleIndex] = {0: self._build(0)}
        self.steps_per_epoch = max(1, round(len(self._latest[0]) / batch_size))

    def _build(self, epoch: int) -> ExampleIndex:
        name = f"the token store {self.tokens.path}" if isinstance(self.tokens, TokenStore) else "the token store"
        return build_index(self._sentences, replace(self.rules, epoch=epoch), name=name)

    def index(self, epoch: int) -> ExampleIndex:
        """The examples of an epoch. Two epochs are kept, because steps of the next are prefetched."""
        if (index := self._latest.get(epoch)) is not None:
            return index
        with _building:  # one thread builds it, the others wait
            if epoch not in self._latest:
                newest = dict([*self._latest.items()][-1:])
                self._latest = {**newest, epoch: self._build(epoch)}
            return self._latest[epoch]

    def rows(self, step: int) -> list[int]:
        """Numbers, in their epoch, of the examples that all ranks together see in step ``step``."""
        epoch, at = divmod(step, self.steps_per_epoch)
        num_examples = len(self.index(epoch))
        first = at * num_examples // self.steps_per_epoch
        end = (at + 1) * num_examples // self.steps_per_epoch
        # With fewer examples than ranks and steps, some see one twice instead of nothing.
        missing = max(0, self.num_ranks - (end - first))
        return [row % num_examples for row in range(first, end + missing)]

    def size(self, step: int) -> int:
        """Tokens of step ``step``, special ones included, over all ranks."""
        rows = np.asarray(self.rows(step))
        return int(self.index(step // self.steps_per_epoch).take(rows).lengths.sum())

    def micro_batches(self, step: int) -> list[Batch]:
        """This rank's part of step ``step``, examples of similar length together."""
        epoch = step // self.steps_per_epoch
        numbers = np.asarray(self.rows(step), np.int64)
        spans = self.index(epoch).take(numbers)
        lengths: list[int] = spans.lengths.tolist()
        order = sorted(range(len(lengths)), key=lengths.__getitem__)[self.rank :: self.num_ranks]
        # Each as full as possible; micro-batches of equal size would change the order of sums.
        parts = map(np.array, split_by_budget(order, lengths, self.max_tokens, even=False))
        return [self.pack(numbers[part], spans.take(part), epoch) for part in parts]

    def halve(self) -> int | None:
        """From now on make micro-batches of at most half as many tokens: how many; None if that is too few."""
        if self.max_tokens // 2 < _FEWEST_TOKENS:
            return None
        self.max_tokens //= 2
        return self.max_tokens

    @abstractmethod
    def pack(self, numbers: Ints, chosen: ExampleSpans, epoch: int) -> Batch:
        """The examples of an epoch with the given numbers, whose spans are ``chosen``, independent of each other."""

    def _check_ids(self, ids: Ids | Ints, size: int) -> None:
        if ids.max() >= size:
            raise DataError(
                f"the token store contains id {int(ids.max())}, but the vocabulary has {size:,} tokens; use the "
                "tokenizer that the store was prepared with"
            )


class PretrainData(ExamplePlan):
    """The batch plan of pre-training encoders.

    Batches carry ``labels`` ``(T,)`` with ``logit_rows`` at the masked tokens, or at those that predict the word beside
    them, and for pairs ``next_sentence_label`` ``(B,)`` (0 = B follows A; 1 = random, or swapped for ``mlm+sop``).
    """

    def __init__(
        self, tokens: SentenceTokens, vocabulary: MaskVocabulary, rules: Rules, **options: Unpack[PlanOptions]
    ) -> None:
        vocabulary.check(rules.masking)
        self.vocabulary, self._has_pairs = vocabulary, rules.has_pairs
        super().__init__(tokens, rules, **options)

    def pack(self, numbers: Ints, chosen: ExampleSpans, epoch: int) -> Batch:
        ids, types, special = self._assemble(chosen)
        boundaries = boundaries_of(chosen.lengths)
        if self.rules.objective in NEIGHBOURS:
            inputs, labels = ids, neighbours(ids, special, NEIGHBOURS[self.rules.objective])
        else:
            keys = bits(stream(self.rules.seed, "mask", epoch), numbers)
            inputs, labels = mask_rows(ids, boundaries, special, keys, self.rules.masking, self.vocabulary)
        return packed_examples(inputs, types, labels, chosen.lengths, chosen.label if self._has_pairs else None)

    def _assemble(self, chosen: ExampleSpans) -> tuple[Ints, Ints, Flags]:
        """[CLS] piece [SEP] piece [SEP] ...: ids, segments, and which tokens are special, all ``(T,)``."""
        starts, ends = self._pieces(chosen)
        num_tokens = int(chosen.lengths.sum())
        first_of_row = np.cumsum(chosen.lengths) - chosen.lengths
        first_piece = np.cumsum(chosen.num_separators) - chosen.num_separators
        begins_row = np.zeros(len(starts), np.int64)
        begins_row[first_piece] = 1
        separators = np.cumsum(ends - starts + 1 + begins_row) - 1
        special = np.zeros(num_tokens, bool)
        special[first_of_row] = special[separators] = True
        ids = np.empty(num_tokens, np.int64)
        ids[first_of_row], ids[separators] = self.vocabulary.cls_id, self.vocabulary.sep_id
        ids[~special] = self._read(starts, ends)
        self._check_ids(ids, self.vocabulary.size)
        types = np.zeros(num_tokens, np.int64)
        if self._has_pairs:
            change = np.zeros(num_tokens + 1, np.int64)
            change[separators[0::2] + 1] += 1
            change[separators[1::2] + 1] -= 1
            types = np.cumsum(change[:-1])
        return ids, types, special

    def _pieces(self, chosen: ExampleSpans) -> tuple[Ints, Ints]:
        """Token offsets, start and end, of every part that is followed by a [SEP], row by row."""
        first_end = chosen.first_start + chosen.first_length
        if self._has_pairs:
            second_end = chosen.second_start + chosen.second_length
            starts = np.stack([chosen.first_start, chosen.second_start], axis=1).ravel()
            return starts, np.stack([first_end, second_end], axis=1).ravel()
        # A segment of several documents is divided at their boundaries.
        sentences = self._sentences
        first = np.searchsorted(sentences.bounds, chosen.first_start, side="right") - 1
        first_cut = sentences.document_of(first) + 1
        counts = chosen.num_separators.astype(np.int64)
        owner = np.repeat(np.arange(len(counts)), counts)
        turn = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
        cut = first_cut[owner] + turn  # number of the document boundary after each part
        starts = np.where(turn == 0, chosen.first_start[owner], sentences.document_start(cut - 1))
        return starts, np.minimum(sentences.document_start(cut), first_end[owner])

    def _read(self, starts: Ints, ends: Ints) -> Ids:
        bounds = self._sentences.bounds
        first = np.searchsorted(bounds, starts, side="right") - 1
        last = np.searchsorted(bounds, ends, side="left")
        begins = starts - bounds[first]
        spans = zip(*(array.tolist() for array in (first, last, begins, ends - starts)), strict=True)
        return np.concatenate([self.tokens.tokens(a, b)[begin : begin + size] for a, b, begin, size in spans])


def neighbours(ids: Ints, special: Flags, shift: int) -> Ints:
    """Labels ``(T,)`` of unmasked rows: each word at the token ``shift`` away from it; special tokens are no targets.

    Every row begins and ends with a special token, so a word and its neighbour are of the same row.
    """
    labels = np.full(len(ids), -100, np.int64)
    words = np.flatnonzero(~special)
    labels[words + shift] = ids[words]
    return labels


def packed_examples(
    inputs: Ints, types: Ints, labels: Ints, lengths: Ints, next_sentence: NDArray[np.int8] | None
) -> Batch:
    """Examples of given lengths ``(B,)`` as a batch; inputs, types and labels ``(T,)``, labels of pairs ``(B,)``."""
    sizes = tuple(lengths.tolist())
    targets = {"labels": torch.from_numpy(labels)}
    if next_sentence is not None:
        targets["next_sentence_label"] = torch.from_numpy(next_sentence.astype(np.int64))
    return Batch(
        input_ids=torch.from_numpy(inputs),
        token_type_ids=torch.from_numpy(types),
        position_ids=positions_of(sizes),
        layout=Layout(sizes),
        targets=targets,
        logit_rows=torch.from_numpy(np.flatnonzero(labels != -100)),
    )
