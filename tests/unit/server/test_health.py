"""/health: answers at once, asks an idle model a question of its own, and says 503 when a batch hangs for real."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import CheckpointError
from bertkit.server.app import ServerApp
from bertkit.server.operations import health
from server_helpers import Reply, ask, save_models, serving

FILM = {"input": "a good film"}
LIMIT = 0.5


@contextmanager
def hanging(app: ServerApp) -> Iterator[None]:
    """The encoder of the model is taken, so that whatever wants to compute hangs."""
    batcher = app.service.models.slots["vectors"].batcher
    assert batcher is not None
    with batcher.model._lock:
        yield


def probed(address: str) -> int:
    """The status of /health."""
    return ask(address, "/health").status


def probed_until(address: str, status: int, seconds: float = 20.0) -> Reply:
    """The first reply of /health with a status."""
    end = time.monotonic() + seconds
    while (reply := ask(address, "/health")).status != status:
        assert time.monotonic() < end, reply
        time.sleep(0.02)
    return reply


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[ServerApp, str]]:
    with serving(*save_models(tmp_path, ("vectors",)), max_batch_seconds=LIMIT, cache_bytes=1000) as found:
        yield found


def test_a_batch_that_hangs_and_one_that_goes_on(started: tuple[ServerApp, str]) -> None:
    app, address = started
    assert ask(address, "/v1/embed", FILM).status == 200
    with ThreadPoolExecutor(1) as pool:
        with hanging(app):
            answer = pool.submit(ask, address, "/v1/embed", {"input": "a bad film"})
            reply = probed_until(address, 503)
            assert reply.body["error_type"] == "Unhealthy"
            assert reply.body["error"].startswith("a batch of vectors has taken")
            assert not answer.done()
        assert answer.result().status == 200
    assert probed(address) == 200


def test_an_idle_model_is_asked(started: tuple[ServerApp, str], monkeypatch: pytest.MonkeyPatch) -> None:
    app, address = started
    batcher = app.service.models.slots["vectors"].batcher
    assert batcher is not None
    used = app.service.models.slots["vectors"].last_used
    assert (probed(address), batcher.counts.batches) == (200, 1)  # nobody has asked yet
    assert (probed(address), batcher.counts.batches) == (200, 1)  # that was a moment ago
    monkeypatch.setattr(health, "FRESH", 0.0)
    assert (probed(address), batcher.counts.batches) == (200, 2)  # and does not come from the cache
    assert app.service.models.slots["vectors"].last_used == used  # so a model that nobody uses is unloaded
    monkeypatch.setattr(health, "WAIT", 0.05)
    with hanging(app):
        assert probed(address) == 200, "not over its limit yet"
        assert "of vectors has " in probed_until(address, 503).body["error"]
    probed_until(address, 200)
    assert batcher.queue.requests == 0
    assert batcher.counts.batches < 60


def test_a_worker_that_takes_nothing(started: tuple[ServerApp, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a fault that ended the thread: no batch hangs, and yet nothing is computed."""
    app, address = started
    batcher = app.service.models.slots["vectors"].batcher
    assert batcher is not None
    monkeypatch.setattr(health, "WAIT", 0.05)
    monkeypatch.setattr(batcher, "_threads", [threading.current_thread()])
    assert probed(address) == 200
    assert probed_until(address, 503).body["error"].startswith("a self-test of vectors has waited")
    batcher._start()
    probed_until(address, 200)


def test_a_model_that_is_damaged_in_memory(started: tuple[ServerApp, str], monkeypatch: pytest.MonkeyPatch) -> None:
    app, address = started
    batcher = app.service.models.slots["vectors"].batcher
    assert batcher is not None

    def damaged(*arguments: Any) -> Any:
        raise CheckpointError("values that are not finite")

    with monkeypatch.context() as patch:
        patch.setattr(batcher.model, "answer", damaged)
        assert ask(address, "/v1/embed", FILM).status == 424
        reply = ask(address, "/health")
        assert (reply.status, reply.body["error"]) == (
            503,
            "the self-test of vectors failed: values that are not finite",
        )
    assert probed(address) == 200


def test_a_full_queue_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "WAIT", 0.05)
    with serving(*save_models(tmp_path, ("vectors",)), max_requests=1) as (app, address), ThreadPoolExecutor(2) as pool:
        with hanging(app):
            answers = [pool.submit(ask, address, "/v1/embed", {"input": "a"})]
            batcher = app.service.models.slots["vectors"].batcher
            assert batcher is not None
            end = time.monotonic() + 20
            while batcher.queue.requests < 1 or not answers[1:]:
                assert time.monotonic() < end
                # It is refused while the first one has not been taken from the queue.
                answers.append(pool.submit(ask, address, "/v1/embed", {"input": "b"}))
                time.sleep(0.02)
            assert probed(address) == 200
        assert {answer.result().status for answer in answers} <= {200, 429}
