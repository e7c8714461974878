"""Rows in packs of about equal length, and items that are drawn from a stream one window at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

from bertkit.ragged import Ints, Ragged

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
AnswerT = TypeVar("AnswerT")


class WindowSize(NamedTuple):
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
#: Tokens computed at once on a CPU: so few that what is between the layers stays in its cache.
MAX_TOKENS_PER_BATCH = 1024
#: Threads work on packs of their own where the share of each is so many times the longest row, or ``SMALLEST_PACK``.
LEAST_WORK = 8
#: Tokens of the smallest packs for several workers: each pack reads all weights.
SMALLEST_PACK = 64


#: Whether rows are packed as for one thread, however many there are: the last bits of an output depend on its pack.
_same_packs = ContextVar("same_packs", default=False)


@contextmanager
def same_packs() -> Iterator[None]:
    """Inside, outputs do not depend on the number of threads, not even in their last bits."""
    token = _same_packs.set(True)
    try:
        yield
    finally:
        _same_packs.reset(token)


def pack_by_length(lengths: Ints, max_tokens: int, workers: int = 1) -> list[list[int]]:
    """Row numbers in packs of at most ``max_tokens`` tokens, each as full as possible; the longest rows first.

    So memory runs out at once or not at all. Rows of equal length keep their order.

    Several ``workers``, of which each takes the next pack when it has finished one, would leave each other alone with
    the last packs. For them a pack has at most half of a worker's share of the tokens that are left (guided
    self-scheduling, Polychronopoulos & Kuck 1987), down to ``SMALLEST_PACK``.
    """
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])
    packs = []
    start = used = 0
    while start < len(order):
        most = max_tokens
        if workers > 1 and not _same_packs.get():
            share = (int(ends[-1]) - used) // workers
            most = min(max_tokens, max(share // 2, SMALLEST_PACK))
        end = max(start + 1, int(np.searchsorted(ends, used + most, side="right")))
        packs.append(order[start:end].tolist())
        start, used = end, int(ends[end - 1])
    return packs


def stream(
    items: Iterable[ItemT],
    encode: Callable[[list[ItemT], int], tuple[Ragged, Callable[[list[ResultT]], Iterable[AnswerT]]]],
    run: Callable[[Ragged, Callable[[int], None]], list[ResultT]],
    *,
    size: WindowSize,
    weight: Callable[[ItemT], int],
    lazy: bool,
    ahead: bool = False,
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[AnswerT]:
    """The answer to each item, in order; memory is bounded by one window.

    encode: from a window and the number of its first item to its rows, and to a function that turns one result per row
        into one answer per item.
    run: from the rows of a window to one result per row; it calls what it is given with the number of rows that are
        done.
    lazy: start with a small window, for a caller who waits for the first answer.
    ahead: draw and encode a window while the one before is computed, by a GPU.
    advance: called with the number of items that are done.
    """

    def encoded() -> Iterator[tuple[int, Ragged, Callable[[list[ResultT]], Iterable[AnswerT]]]]:
        first = 0
        for window in draw_windows(items, size, weight=weight, lazy=lazy):
            yield len(window), *encode(window, first)
            first += len(window)

    for count, rows, answers in one_ahead(encoded()) if ahead else encoded():
        yield from answers(run(rows, _in_items(advance, count, len(rows))))


def one_ahead(items: Iterator[ItemT]) -> Iterator[ItemT]:
    """The same items, none of which is None; another thread makes the next while one is used."""
    from concurrent.futures import ThreadPoolExecutor  # one text needs none

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


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


def threads_for(lengths: Ints, threads: int) -> int:
    """As many threads as there may be, if each has far more to do than the longest row; else 1.

    Threads that share a pack wait for each other in every layer; those that work on their own wait once, for whichever
    has the last pack.
    """
    least = LEAST_WORK * threads * max(int(lengths.max()), SMALLEST_PACK)
    return 1 if threads == 1 or lengths.sum() < least else threads
