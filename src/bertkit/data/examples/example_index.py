"""The examples of an epoch, in the order in which they are seen: one number each.

What an example is made of follows from the place where it begins (:mod:`bertkit.data.examples.pairs`), so only the
places are kept, and the spans of a batch are found again when it is made, in about 3 microseconds an example.

Bytes, with K sentences, N examples and T tokens, and what that is for Wikipedia and books (K = 162 million, N = 48
million pairs of 128 tokens, T = 4.4 billion; measured with sentences of drawn lengths, 21 s on one core):

* :class:`~bertkit.data.examples.pairs.Sentences`: 8 K = 1.3 GB, which are the store's. Of a store that is larger than
its cache
  they are mapped from the disk, once for all processes of the machine; otherwise each process has them.
* :class:`ExampleIndex`: 4 N up to 2^32 tokens, 8 N beyond = 0.4 GB in each process; twice that where an epoch ends.
* While it is built: up to 2^32 tokens 8 N more, beyond 1 N; and one block, about 100 bytes for each of
  :data:`DOCUMENTS_AT_ONCE` documents = 50 MB. The peak was 9 N = 0.44 GB in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.data.examples.counter_random import Int64, UInt64, bits, counters_of
from bertkit.data.examples.pairs import ExampleSpans, Objective, Rules, Sentences, examples_at, places_from, stretches
from bertkit.errors import DataError
from bertkit.system.console import Progress

#: Documents worked on together. Fewer need less memory while an index is built; far fewer need more time, for a block
#: with one long document takes as many rounds as that document has examples.
DOCUMENTS_AT_ONCE = 1 << 19
#: Numbers that are turned back into places at a time.
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class ExampleIndex:
    """The N examples of an epoch, shuffled.

    sentences: the corpus.
    rules: how its examples are cut.
    places: uint32, or int64 for a corpus of more than 2^32 tokens, ``(N,)``: token offset where each begins, before
        anything is cut off.
    """

    sentences: Sentences
    rules: Rules
    places: NDArray[Any]

    def __len__(self) -> int:
        return len(self.places)

    def take(self, numbers: Int64) -> ExampleSpans:
        """What the examples with the given numbers are made of."""
        places = self.places[numbers].astype(np.int64)
        order = np.argsort(places)  # places that lie together are found together
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return examples_at(self.sentences, self.rules, places[order]).take(back)


def build_index(
    sentences: Sentences,
    *,
    objective: Objective,
    max_seq_length: int,
    short_seq_prob: float = 0.1,
    seed: int = 0,
    epoch: int = 0,
    documents_at_once: int = DOCUMENTS_AT_ONCE,
) -> ExampleIndex:
    """The examples of an epoch, shuffled: a pure function of its arguments.

    Every sentence is in the first segment, or the true second one, of one example; a random second segment comes on
    top. Sentences at the outer ends of a pair that is too long may be cut off.

    Args:
        sentences: the corpus.
        objective: see :data:`~bertkit.data.examples.pairs.Objective`.
        max_seq_length: most tokens of an example, special ones included.
        short_seq_prob: how often a target length is drawn from 2 ... maximum instead of being the maximum. RoBERTa
            has 0.
        seed: fixes all choices, together with the epoch.
        epoch: counted from 0.
        documents_at_once: for memory only; the result does not depend on it.

    Raises:
        ConfigError: an unknown objective, too small a length, a probability outside 0 ... 1.
        DataError: ``mlm+nsp`` from fewer than two documents; no example at all.
    """
    rules = Rules.of(objective, max_seq_length, short_seq_prob, seed, epoch)
    if objective == "mlm+nsp" and len(sentences.documents) < 3:
        raise DataError(
            "objective 'mlm+nsp' needs at least 2 documents with text, for a random next sentence is from another "
            "document, and the token store has 1. Separate documents by blank lines, or use 'mlm' or 'mlm+sop'"
        )
    # The order is that of a number drawn at each place. No two places draw the same, so the sorted numbers tell the
    # places in that order: neither the places nor a permutation need to be held beside them.
    key = rules.key("shuffle")
    order: UInt64 = np.empty(1 << 12, np.uint64)
    count = 0
    with Progress(len(sentences.bounds) - 1, label=f"examples of epoch {epoch}", unit="sentences") as shown:
        for start, stop in stretches(sentences, rules, documents_at_once):
            for places in places_from(sentences, rules, start, stop):
                end = count + len(places)
                if end > len(order):  # in place: nothing is copied, and at most an eighth is too much
                    order.resize(max(end, len(order) * 9 // 8), refcheck=False)
                order[count:end] = bits(key, places)
                count = end
            shown.advance(int(stop[-1] - start[0]))
    order.resize(count, refcheck=False)
    if len(order) == 0:
        raise DataError(f"the token store is too small for one example of objective {objective!r}")
    order.sort()
    return ExampleIndex(sentences, rules, _places(key, order, int(sentences.bounds[-1])))


def _places(key: int, drawn: UInt64, num_tokens: int) -> NDArray[Any]:
    """Where the numbers were drawn; what was ``drawn`` is overwritten."""
    places = np.empty(len(drawn), np.uint32) if num_tokens <= 1 << 32 else drawn.view(np.int64)
    for at in range(0, len(drawn), _BLOCK):
        places[at : at + _BLOCK] = counters_of(key, drawn[at : at + _BLOCK])
    return places
