"""A request may wait for room in a full queue, if it asks for that: no longer than it says, and than its deadline."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from bertkit.server import batcher as batcher_module
from bertkit.server.app import ServerApp
from server_helpers import Reply, ask, save_models, serving

FILM = {"input": "a good film"}


class Full(NamedTuple):
    """A server with a full queue, and what lets it go on."""

    app: ServerApp
    address: str
    may_go_on: threading.Event
    sent: list[Any]
    pool: ThreadPoolExecutor

    def send(self, body: Any = FILM, path: str = "/v1/embed", **headers: str) -> Any:
        """The reply to come of a request."""
        return self.pool.submit(ask, self.address, path, body, **headers)

    def until_waiting(self, count: int) -> None:
        """Come back when so many requests wait for room."""
        until(lambda: self.app.service._waiting == count)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Full]:
    """One request is being computed until the event is set, and behind it are the two that may wait."""
    computed, may_go_on = batcher_module.Batcher._computed, threading.Event()

    def waiting(self: Any, batch: Any) -> Any:
        assert may_go_on.wait(60)
        return computed(self, batch)

    models = save_models(tmp_path, ("vectors",))
    with serving(*models, max_requests=2) as (app, address), ThreadPoolExecutor(8) as pool:
        monkeypatch.setattr(batcher_module.Batcher, "_computed", waiting)
        batcher = app.service.models.slots["vectors"].batcher
        assert batcher is not None
        found = Full(app, address, may_go_on, [], pool)
        try:
            found.sent.append(found.send())
            until(lambda: batcher.running_seconds() > 0)
            found.sent.extend([found.send(), found.send()])
            until(lambda: len(batcher.queue) == 2)
            yield found
        finally:
            may_go_on.set()


def kind(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.body["error"]["type"]


def test_who_asks_for_it_waits_for_room(full: Full) -> None:
    assert kind(ask(full.address, "/v1/embed", FILM)) == (429, "overloaded"), "without the header"
    assert kind(ask(full.address, "/v1/embed", FILM, x_queue_wait="5m")) == (422, "invalid")
    waiting = [full.send({**FILM, "wait": 30}), full.send({"inputs": "a good film"}, "/embed", x_queue_wait="30000ms")]
    full.until_waiting(2)
    assert not any(future.done() for future in (*full.sent, *waiting))
    full.may_go_on.set()
    assert [future.result().status for future in (*full.sent, *waiting)] == [200] * 5
    full.until_waiting(0)


def test_no_longer_than_it_says_and_than_its_deadline(full: Full) -> None:
    begun = time.monotonic()
    reply = ask(full.address, "/v1/embed", FILM, x_queue_wait="100ms")
    assert (*kind(reply), "retry-after" in reply.headers) == (429, "overloaded", True)
    assert time.monotonic() - begun >= 0.1
    late = ask(full.address, "/v1/embed", {**FILM, "timeout": 0.1}, x_queue_wait="30")
    assert kind(late) == (504, "timeout")
    assert kind(ask(full.address, "/v1/embed", {**FILM, "wait": 0}, x_queue_wait="30")) == (429, "overloaded")


def test_who_leaves_waits_no_more(full: Full) -> None:
    place = urlsplit(full.address)
    body = json.dumps({**FILM, "wait": 30}).encode()
    head = f"POST /v1/embed HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection((place.hostname, place.port)) as connection:
        connection.sendall(head + body)
        full.until_waiting(1)
    full.until_waiting(0)
    full.may_go_on.set()
    assert [future.result().status for future in full.sent] == [200] * 3
    batcher = full.app.service.models.slots["vectors"].batcher
    assert batcher is not None
    assert batcher.counts.requests == 3


def test_no_more_wait_for_room_than_may_wait_in_the_queue(full: Full) -> None:
    waiting = [full.send(x_queue_wait="30") for _ in range(2)]
    full.until_waiting(2)
    assert kind(ask(full.address, "/v1/embed", FILM, x_queue_wait="30")) == (429, "overloaded")
    full.may_go_on.set()
    assert [future.result().status for future in waiting] == [200] * 2


def test_a_body_that_is_too_large_does_not_wait(full: Full) -> None:
    large = b'{"wait": 30, "input": "' + b"a" * 5_000_000 + b'"}'
    assert kind(ask(full.address, "/v1/embed", large, x_queue_wait="30")) == (413, "body_too_large")


def test_the_description_says_so(full: Full) -> None:
    paths = ask(full.address, "/openapi.json").body["paths"]
    wait = {"$ref": "#/components/parameters/wait"}
    for path in ("/v2/embed", "/models/{model}"):
        assert wait in paths[path]["post"]["parameters"]
    assert wait not in paths["/v1/bulk/embed"]["post"]["parameters"], "whose lines always wait"
