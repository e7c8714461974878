"""The sums of several processes, while they write, are killed, and are replaced."""

from __future__ import annotations

import os
import signal
import time

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bertkit.server.operations.board import Board

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
#: What each worker counts, again and again: both numbers are the same whenever it writes.
WORKERS = 3


def count_for_ever(board: Board, place: int) -> None:
    registry = CollectorRegistry()
    counter = Counter("done", "Steps.", ("kind",), registry=registry)
    histogram = Histogram("took", "Seconds.", registry=registry, buckets=(1.0,))
    Gauge("waiting", "Now.", registry=registry).set(7)
    while True:
        counter.labels("a").inc()
        histogram.observe(0.5)
        board.write(place, registry.collect())


def sums_of(board: Board) -> dict[str, float]:
    return {sample.name: sample.value for metric in board.metrics() for sample in metric.samples}


def until_all_write(board: Board) -> None:
    deadline = time.monotonic() + 60
    while sums_of(board).get("waiting") != 7 * WORKERS:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.campaign
def test_sums_do_not_fall_when_workers_are_killed_while_they_write() -> None:
    board, workers = Board(WORKERS + 1), []

    def start() -> None:
        place = board.free_place()
        assert place is not None
        worker = os.fork()
        if not worker:
            count_for_ever(board, place)
        board.take(worker, place)
        workers.append(worker)

    try:
        for _ in range(WORKERS):
            start()
        last = 0.0
        for round_number in range(60):
            if round_number % 3 == 0:
                until_all_write(board)
                worker = workers.pop(0)
                os.kill(worker, signal.SIGKILL)
                os.waitpid(worker, 0)
                board.give_up(worker)
                found = sums_of(board)
                assert (found["bertkit_workers"], found["waiting"]) == (WORKERS - 1, 7 * (WORKERS - 1))
                start()
            found = sums_of(board)
            assert found["done_total"] == found["took_count"] == found["took_bucket"]
            assert found["done_total"] >= last
            last = found["done_total"]
        assert last > 100
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)


def test_without_a_place_a_worker_counts_for_itself() -> None:
    board = Board(1)
    board.take(1, board.free_place())
    assert board.free_place() is None
    board.take(2, None)
    board.give_up(2)
    board.give_up(1)
    assert board.free_place() == 1
