"""Rows of several heads as one set, and which of them make a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bertkit.ragged import Flags, Ids, Ints
from bertkit.tasks.examples import Encoded


@dataclass(frozen=True, slots=True)
class HeadRows:
    """The rows of each head, numbered one head after the other."""

    parts: Mapping[str, Encoded]

    def __len__(self) -> int:
        return sum(map(len, self.parts.values()))

    @property
    def ids(self) -> Ids:
        """Token ids of all rows ``(T,)``."""
        return np.concatenate([part.ids for part in self.parts.values()])

    @property
    def lengths(self) -> Ints:
        """Tokens of each row ``(R,)``."""
        return np.concatenate([part.lengths for part in self.parts.values()])

    @property
    def num_tokens_before(self) -> Ints:
        """Tokens of each row before truncation ``(R,)``."""
        return np.concatenate([part.num_tokens_before for part in self.parts.values()])

    @property
    def truncated(self) -> Flags:
        """Which rows lost something for good ``(R,)``."""
        return np.concatenate([part.truncated for part in self.parts.values()])

    def locate(self, rows: Sequence[int]) -> tuple[str, list[int]]:
        """The head of some rows, which is the same for all, and their numbers among its own."""
        start = 0
        for name, part in self.parts.items():
            if rows[0] < start + len(part):
                own = [row - start for row in rows]
                assert 0 <= min(own) <= max(own) < len(part), "the rows of a batch are of one head"
                return name, own
            start += len(part)
        raise AssertionError(f"there is no row {rows[0]}")


def steps_of_heads(sizes: Sequence[int], step_size: int, alpha: float) -> list[int]:
    """Steps of an epoch by head: together as many as go over all rows once, divided by size ** alpha; at least one."""
    total = sum(math.ceil(size / step_size) for size in sizes)
    weights = [size**alpha for size in sizes]
    return [max(1, round(total * weight / sum(weights))) for weight in weights]


def head_sampler(sizes: Sequence[int], step_size: int, alpha: float, seed: int) -> Callable[[int], list[Ints]]:
    """From an epoch to the rows of its steps, each of one head, in an order of its own: a pure function.

    A head goes through its rows in a new order each time, however many of its steps an epoch has: where it has fewer
    than its rows need, the next epoch goes on; where it has more, it begins again.
    """
    counts = steps_of_heads(sizes, step_size, alpha)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])

    @lru_cache(maxsize=2 * len(sizes))
    def order(head: int, turn: int) -> Ints:
        return _generator(seed, head, turn).permutation(sizes[head])

    def step(head: int, number: int) -> Ints:
        turn, place = divmod(number, math.ceil(sizes[head] / step_size))
        rows: Ints = starts[head] + order(head, turn)[place * step_size : (place + 1) * step_size]
        return rows

    def steps_of(epoch: int) -> list[Ints]:
        which = np.repeat(np.arange(len(sizes)), counts)
        _generator(seed, len(sizes), epoch).shuffle(which)
        taken = [epoch * count for count in counts]
        found = []
        for head in which.tolist():
            found.append(step(head, taken[head]))
            taken[head] += 1
        return found

    return steps_of


def _generator(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
