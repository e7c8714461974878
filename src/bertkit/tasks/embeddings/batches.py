"""Which rows are compared with each other in a step: a pure function of seed and epoch.

Where every text of a batch is a negative for the others, the same text twice would be its own negative, so no text
stands in two rows of a batch, on whichever side.
"""

from __future__ import annotations

import heapq
import math
from itertools import chain

import numpy as np

from bertkit.ragged import Ints

#: An epoch has at most so many times the steps that its rows need without repeated texts. A text in more rows than that
#: would make batches so small that they have few negatives; some of its rows sit the epoch out instead.
MOST_STEPS = 2


def num_steps(texts: Ints, size: int) -> int:
    """Steps of an epoch: as many as the rows fill, and as the most frequent text needs, within :data:`MOST_STEPS`."""
    needed = math.ceil(len(texts) / size)
    return max(needed, min(int(_rows_of_text(texts).max()), MOST_STEPS * needed))


def epoch_batches(texts: Ints, size: int, *, seed: int, epoch: int) -> list[Ints]:
    """The rows of each step, of which no two share a text: arrays of nearly equal lengths. Some may be left out."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, epoch))))
    order = generator.permutation(len(texts))
    steps = num_steps(texts, size)
    # The most frequent texts first, while there is room in every batch; rows whose texts occur once fit anywhere.
    repeats = _rows_of_text(texts)[texts].max(axis=1)[order]
    alone = order[repeats == 1]
    if len(alone) == len(order):
        return np.array_split(order, steps)
    repeated = order[repeats > 1][np.argsort(-repeats[repeats > 1], kind="stable")]
    batches = _without_repeats(texts, repeated, steps, room=math.ceil(len(texts) / steps))
    smallest = [(len(batch), number) for number, batch in enumerate(batches)]
    heapq.heapify(smallest)
    for row in alone.tolist():
        length, number = smallest[0]
        batches[number].append(row)
        heapq.heapreplace(smallest, (length + 1, number))
    return [np.array(batches[number], np.int64) for number in generator.permutation(steps)]


def _without_repeats(texts: Ints, rows: Ints, steps: int, *, room: int) -> list[list[int]]:
    """The rows in so many batches of at most ``room``, one batch after the other in turn, where there is a place."""
    batches: list[list[int]] = [[] for _ in range(steps)]
    inside: list[set[int]] = [set() for _ in range(steps)]
    left = np.full(int(texts.max()) + 1, steps)  # batches without each text
    turn = 0
    for row, own in zip(rows.tolist(), map(set, texts[rows].tolist()), strict=True):
        if min(left[text] for text in own) == 0:
            continue
        free = (
            number
            for number in chain(range(turn, steps), range(turn))
            if len(batches[number]) < room and inside[number].isdisjoint(own)
        )
        if (number := next(free, None)) is not None:
            batches[number].append(row)
            inside[number] |= own
            left[list(own)] -= 1
            turn = (number + 1) % steps
    return batches


def _rows_of_text(texts: Ints) -> Ints:
    """In how many rows each text is, by its number."""
    counts = np.zeros(int(texts.max()) + 1, np.int64)
    first = np.ones(texts.shape, bool)  # a text that stands twice in a row counts once
    for column in range(1, texts.shape[1]):
        first[:, column] = (texts[:, column, None] != texts[:, :column]).all(axis=1)
    np.add.at(counts, texts[first], 1)
    return counts
