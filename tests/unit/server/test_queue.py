"""The queue: nothing is lost, batches are of one kind, clients take turns."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bertkit.server.queue import BULK_EVERY, Entry, RequestQueue

MOST = 100
ENTRIES = st.lists(
    st.builds(
        lambda number, key, tokens, client, deadline, bulk, gone: Entry(
            number, key, tokens, client, 0.0, deadline, bulk, gone
        ),
        number=st.integers(),
        key=st.sampled_from("ab"),
        tokens=st.integers(1, 150),
        client=st.sampled_from("xyz"),
        deadline=st.sampled_from([None, 5.0, 50.0]),
        bulk=st.booleans(),
        gone=st.booleans(),
    ),
    max_size=40,
)


def filled(entries: list[Entry[int]]) -> RequestQueue[int]:
    queue: RequestQueue[int] = RequestQueue(1 << 20, 1 << 20)
    assert all(queue.offer(entry) for entry in entries)
    return queue


@given(ENTRIES, st.sampled_from([1.0, 10.0, 100.0]))
def test_each_entry_comes_out_once(entries: list[Entry[int]], now: float) -> None:
    queue = filled(entries)
    assert (len(queue), queue.tokens) == (len(entries), sum(entry.tokens for entry in entries))
    seen: list[Entry[int]] = []
    while len(queue):
        taken = queue.take(MOST, now)
        batch = taken.batch
        assert len({entry.key for entry in batch}) <= 1
        assert sum(entry.tokens for entry in batch) <= MOST or len(batch) == 1
        assert not any(entry.gone or (entry.deadline or 1e9) <= now for entry in batch)
        assert all(entry.gone and (entry.deadline or 1e9) > now for entry in taken.dropped)
        assert all((entry.deadline or 1e9) <= now for entry in taken.expired)
        seen += batch + taken.dropped + taken.expired
        assert queue.tokens == sum(entry.tokens for entry in entries if entry not in seen or entry in batch)
        queue.finished(batch)
        assert batch or taken.dropped or taken.expired
    assert Counter(map(id, seen)) == Counter(map(id, entries))
    assert (queue.tokens, queue.requests) == (0, 0)


@given(ENTRIES)
def test_requests_of_a_client_keep_their_order(entries: list[Entry[int]]) -> None:
    queue = filled(entries)
    seen: list[Entry[int]] = []
    while len(queue):
        seen += queue.take(MOST, 0.0).batch
    for client in "xyz":
        for bulk in (False, True):
            own = [entry for entry in entries if (entry.client, entry.bulk, entry.gone) == (client, bulk, False)]
            assert [entry for entry in seen if (entry.client, entry.bulk) == (client, bulk)] == own


def test_a_client_with_much_work_does_not_hold_up_another() -> None:
    queue = filled([Entry(number, "a", 10, "greedy", 0.0) for number in range(1000)])
    queue.offer(Entry(-1, "a", 10, "modest", 0.0))
    assert any(entry.client == "modest" for entry in queue.take(MOST, 0.0).batch)


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.lists(st.integers(1, 60), min_size=1, max_size=6)), max_size=12))
def test_parts_keep_their_order_and_a_request_waits_until_its_last_part_is_taken(
    requests: list[tuple[str, list[int]]],
) -> None:
    queue: RequestQueue[tuple[int, int]] = RequestQueue(1 << 20, 1 << 20)
    for number, (client, sizes) in enumerate(requests):
        parts = [Entry((number, part), "a", size, client, 0.0) for part, size in enumerate(sizes)]
        for entry in parts[:-1]:
            entry.last = False
        assert queue.offer(*parts)
    missing = {number: len(sizes) for number, (_, sizes) in enumerate(requests)}
    seen: list[tuple[int, int]] = []
    while len(queue):
        taken = queue.take(MOST, 0.0)
        seen += [entry.payload for entry in taken.batch]
        for entry in taken.batch:
            missing[entry.payload[0]] -= 1
        assert len(queue) == sum(map(bool, missing.values()))
        queue.finished(taken.batch)
    assert (queue.tokens, queue.charged) == (0, 0)
    for number, (_, sizes) in enumerate(requests):
        assert [part for request, part in seen if request == number] == list(range(len(sizes)))


def test_a_request_of_many_parts_does_not_hold_up_another_of_its_client() -> None:
    queue: RequestQueue[int] = RequestQueue(1 << 20, 1 << 20)
    assert queue.offer(*[Entry(number, "a", MOST, "x", 0.0, last=number == 99) for number in range(100)])
    assert queue.offer(Entry(-1, "a", MOST, "x", 0.0))
    assert [queue.take(MOST, 0.0).batch[0].payload for _ in range(3)] == [0, -1, 1]


def test_bulk_work_waits_but_does_not_starve() -> None:
    queue = filled([Entry(number, "a", MOST, "x", 0.0) for number in range(100)])
    queue.offer(Entry(-1, "b", 10, "y", 0.0, bulk=True))
    batches = [queue.take(MOST, 0.0).batch for _ in range(2 * BULK_EVERY)]
    places = [place for place, batch in enumerate(batches) if batch[0].bulk]
    assert places == [BULK_EVERY - 1]


def test_a_full_queue_says_so_and_what_is_being_computed_counts() -> None:
    queue: RequestQueue[int] = RequestQueue(100, 3)
    assert all(queue.offer(Entry(number, "a", 50, "x", 0.0)) for number in range(2))
    assert not queue.offer(Entry(2, "a", 1, "x", 0.0))
    assert (queue.lacks(1), queue.fullness) == ("tokens", 1.0)
    taken = queue.take(MOST, 0.0)
    assert not queue.offer(Entry(2, "a", 1, "x", 0.0)), "what is being computed counts"
    queue.finished(taken.batch)
    assert all(queue.offer(Entry(number, "a", 1, "x", 0.0)) for number in range(3))
    assert not queue.offer(Entry(6, "a", 1, "x", 0.0)), "as many requests as may wait"
    assert (queue.lacks(1), queue.fullness) == ("requests", 1.0)


def test_a_request_that_is_larger_than_the_queue_leaves_room_for_others() -> None:
    queue: RequestQueue[int] = RequestQueue(100, 10)
    parts = [Entry(number, "a", 30, "x", 0.0, last=number == 9) for number in range(10)]
    assert queue.offer(*parts)
    assert (queue.tokens, queue.charged, queue.requests) == (300, 50, 1)
    assert queue.offer(Entry(10, "a", 40, "y", 0.0))
    assert not queue.offer(*[Entry(number, "a", 30, "z", 0.0, last=number == 1) for number in range(2)])
    assert (queue.tokens, queue.requests) == (340, 2), "of a request that is refused nothing is left"
    batches = []
    while len(queue):
        batches.append(queue.take(MOST, 0.0).batch)
        queue.finished(batches[-1])
    assert [entry.client for entry in batches[0]].count("y") == 1
    assert [entry.payload for batch in batches for entry in batch if entry.client == "x"] == list(range(10))
    assert (queue.tokens, queue.charged, queue.requests) == (0, 0, 0)


def test_how_long_the_queue_takes_comes_from_its_batches() -> None:
    queue: RequestQueue[int] = RequestQueue(10_000, 100)
    queue.note(1000, 2.0)
    queue.offer(Entry(0, "a", 250, "x", 0.0))
    assert queue.seconds_until_room() == 0.5
