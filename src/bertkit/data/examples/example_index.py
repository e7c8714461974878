"""The examples of an epoch, in the order in which they are seen: one number each.

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

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertkit.data.counter_random import Int64, UInt64, bits, counters_of
from bertkit.data.examples.pairs import ExampleSpans, Rules, Sentences, examples_at, places_from, stretches
from bertkit.errors import DataError
from bertkit.system.console import Progress

#: Documents processed together. Fewer need less memory while an index is built; far fewer need more time, because a
#: block with one long document takes as many rounds as that document has examples.
DOCUMENTS_AT_ONCE = 1 << 19
#: Numbers converted back into positions at a time.
_BLOCK = 1 << 20

Places = NDArray[np.uint32 | np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ExampleIndex:
    """The N examples of an epoch, shuffled.

    places: uint32, or int64 for a corpus of more than 2^32 tokens, ``(N,)``: token offset where each begins, before
        it is shortened.
    """

    sentences: Sentences
    rules: Rules
    places: Places

    def __len__(self) -> int:
        return len(self.places)

    def take(self, numbers: Int64) -> ExampleSpans:
        """The spans of the examples with the given numbers."""
        places = self.places[numbers].astype(np.int64)
        order = np.argsort(places)  # neighbouring positions are found together
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return examples_at(self.sentences, self.rules, places[order]).take(back)


def build_index(sentences: Sentences, rules: Rules, *, documents_at_once: int = DOCUMENTS_AT_ONCE) -> ExampleIndex:
    """The examples of an epoch, shuffled: a pure function of its arguments.

    Every sentence is in the first segment, or the true second one, of one example; random second segments come on top.
    Sentences at the outer ends of a pair that is too long may be cut off.

    The result does not depend on ``documents_at_once``, which limits memory.
    """
    if rules.objective == "mlm+nsp" and len(sentences.documents) < 3:
        raise DataError(
            "objective 'mlm+nsp' needs at least 2 documents with text, because a random next sentence comes from "
            "another document, and the token store has 1. Separate documents by blank lines, or use 'mlm' or 'mlm+sop'"
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
        raise DataError(f"the token store is too small for one example of objective {rules.objective!r}")
    order.sort()
    # Back to positions, block by block; those of a very large corpus overwrite the numbers.
    is_small = sentences.bounds[-1] <= 1 << 32
    found: Places = np.empty(len(order), np.uint32) if is_small else order.view(np.int64)
    for at in range(0, len(order), _BLOCK):
        found[at : at + _BLOCK] = counters_of(key, order[at : at + _BLOCK])
    return ExampleIndex(sentences, rules, found)
