"""Run rows of any lengths through a back-end: sorted by length, in packs without padding, results in order.

Sorting costs nothing here, because rows do not depend on each other, and gives attention sequences of equal length.
Nothing is kept between two calls, so any number of threads may call at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

import numpy as np

from bertkit.ragged import Ints, Ragged

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
AnswerT = TypeVar("AnswerT")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class Backend(Protocol[ResultT_co]):
    """What computes packs of rows: a torch model, or a session of another runtime."""

    @property
    def max_tokens(self) -> int:
        """Most tokens of a pack; a single row that is longer is a pack of its own."""

    def compute(self, rows: Ragged, numbers: Sequence[int]) -> Sequence[ResultT_co]:
        """One result for each of these rows, in their order; several threads may call at once."""

    def num_threads(self, num_packs: int) -> int:
        """How many threads should compute so many packs, each its own; 1: the caller's thread, one after the other."""

    def in_thread(self) -> AbstractContextManager[None]:
        """Held around :meth:`compute` in each of several threads."""


@dataclass(frozen=True, slots=True)
class WindowSize:
    """How many items are drawn from a stream, encoded and sorted by length together.

    items: at most so many. characters: no more are drawn once their texts have so many.
    first: items of the first window of a lazy stream, so that its first results come soon; the next ones double.
    """

    items: int
    first: int
    characters: int


TEXTS = WindowSize(items=2048, first=64, characters=8_000_000)
#: Of items that are many rows each, or rows of full length: questions, tagged sentences.
QUESTIONS = WindowSize(items=256, first=16, characters=2_000_000)


def run_rows(
    rows: Ragged, backend: Backend[ResultT], advance: Callable[[int], None] = lambda count: None
) -> list[ResultT]:
    """One result per row, at least one, in the order of the rows.

    ``advance`` is called with the number of rows after each pack, and may raise to stop.
    """
    packs = pack_by_length(rows.lengths, backend.max_tokens)
    values: list[ResultT | None] = [None] * len(rows)
    for numbers, results in zip(packs, _computed(packs, rows, backend), strict=True):
        for number, value in zip(numbers, results, strict=True):
            values[number] = value
        advance(len(numbers))
    return values  # type: ignore[return-value]  # every row was in exactly one pack


def pack_by_length(lengths: Ints, max_tokens: int) -> list[list[int]]:
    """Row numbers in packs of at most ``max_tokens`` tokens, each as full as possible; the longest rows first.

    So memory runs out at once or not at all. Rows of equal length keep their order.
    """
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])
    packs = []
    start = 0
    while start < len(order):
        used = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, used + max_tokens, side="right")))
        packs.append(order[start:end].tolist())
        start = end
    return packs


def _computed(packs: Sequence[Sequence[int]], rows: Ragged, backend: Backend[ResultT]) -> Iterator[Sequence[ResultT]]:
    """The results of each pack, in order."""
    num_threads = backend.num_threads(len(packs))
    if num_threads == 1:
        for numbers in packs:
            yield backend.compute(rows, numbers)
        return

    def compute(numbers: Sequence[int]) -> Sequence[ResultT]:
        with backend.in_thread():
            return backend.compute(rows, numbers)

    pool = ThreadPoolExecutor(num_threads)
    try:
        yield from pool.map(compute, packs)
    finally:
        pool.shutdown(cancel_futures=True)


def stream(
    items: Iterable[ItemT],
    encode: Callable[[list[ItemT], int], tuple[Ragged, Callable[[list[ResultT]], Iterable[AnswerT]]]],
    backend: Callable[[], Backend[ResultT]],
    *,
    size: WindowSize,
    weight: Callable[[ItemT], int],
    lazy: bool,
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[AnswerT]:
    """The answer to each item, in order; memory is bounded by one window.

    Args:
        items: drawn one window at a time, as they are needed.
        encode: from a window and the number of its first item to its rows, and to a function that turns one result
            per row into one answer per item.
        backend: called for each window.
        size: of a window.
        weight: characters of an item.
        lazy: start with a small window, for a caller who waits for the first answer.
        advance: called with the number of items that are done.
    """
    first = 0
    for window in draw_windows(items, size, weight=weight, lazy=lazy):
        rows, answers = encode(window, first)
        yield from answers(run_rows(rows, backend(), _in_items(advance, len(window), len(rows))))
        first += len(window)


def draw_windows(
    items: Iterable[ItemT], size: WindowSize, *, weight: Callable[[ItemT], int], lazy: bool = False
) -> Iterator[list[ItemT]]:
    """Items by windows, drawn as they are needed; see :func:`stream`."""
    source, count = iter(items), size.first if lazy else size.items
    while window := list(_draw(source, count, size.characters, weight)):
        yield window
        count = min(2 * count, size.items)


def _draw(items: Iterator[ItemT], count: int, characters: int, weight: Callable[[ItemT], int]) -> Iterator[ItemT]:
    drawn = 0
    for item in islice(items, count):
        yield item
        drawn += weight(item)
        if drawn >= characters:
            return


def _in_items(advance: Callable[[int], None], num_items: int, num_rows: int) -> Callable[[int], None]:
    """``advance`` in items, to be called in rows: an item may be several rows, which are not computed together."""
    done = 0

    def advance_rows(count: int) -> None:
        nonlocal done
        before, done = done, done + count
        advance(done * num_items // num_rows - before * num_items // num_rows)

    return advance_rows
