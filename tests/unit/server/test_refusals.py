"""Bad requests: the status and the message that help, never a 500, and the server lives on."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch

from bertkit import BertModel
from bertkit.server import batcher as batcher_module
from pipeline_helpers import save_tiny
from server_helpers import Reply, ask, save_models, serving


def kind(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.body["error"]["type"]


@pytest.mark.parametrize(
    ("path", "body", "expected", "said"),
    [
        ("/v1/embed", b"{", (400, "malformed"), "not JSON"),
        ("/v1/embed", b"\xff\xfe", (400, "malformed"), "not JSON"),
        ("/v1/embed", [1, 2], (422, "invalid"), "JSON object, got a list"),
        ("/v1/embed", {}, (422, "invalid"), "input"),
        ("/v1/embed", {"input": 3}, (422, "invalid"), "input"),
        ("/v1/embed", {"input": []}, (422, "empty"), "empty"),
        ("/v1/embed", {"input": ""}, (422, "empty"), "input 0"),
        ("/v1/embed", {"input": ["a", " \n "]}, (422, "empty"), "input 1"),
        ("/v1/embed", {"input": "a", "normalise": True}, (422, "invalid"), "normalise"),
        ("/v1/embed", {"input": "a", "dimensions": 0}, (422, "invalid"), "dimensions"),
        ("/v1/embed", {"input": "a", "dimensions": 33, "model": "vectors"}, (422, "invalid"), "32"),
        ("/v1/embed", {"input": ["a"] * 17}, (422, "too_many"), "16"),
        ("/v1/embed", {"input": "a", "model": "vectrs"}, (404, "unknown_model"), "vectors"),
        ("/v1/tag", {"input": "a", "model": "vectors"}, (424, "wrong_task"), "embed"),
        ("/v1/generate", {"input": "a"}, (424, "wrong_task"), "generate"),
        ("/v1/answer", {"input": {"question": "", "context": "a"}}, (422, "empty"), "question"),
        ("/v1/choose", {"input": {"context": "a", "choices": ["b"]}}, (422, "invalid"), "choices"),
        ("/v1/fill-mask", {"input": "no mask", "model": "masks"}, (422, "invalid"), "[MASK]"),
        ("/v1/classify", {"input": "a", "overflow": "drop"}, (422, "invalid"), "overflow"),
        ("/v1/embed", {"input": "a", "overflow": "window"}, (422, "invalid"), "overflow"),
        ("/v1/nothing", {"input": "a"}, (404, "no_route"), "/v1/nothing"),
        ("/v1/embed", None, (405, "method"), "GET"),
    ],
)
def test_bad_requests(server: Any, path: str, body: Any, expected: tuple[int, str], said: str) -> None:
    reply = ask(server.address, path, body)
    assert kind(reply) == expected
    assert said in reply.body["error"]["message"]
    assert ask(server.address, "/v1/embed", {"input": "film", "model": "vectors"}).status == 200


def test_strange_texts_are_answered(server: Any) -> None:
    for text in ("a\0b", "\u202e", "x" * 10_000, "\U0010ffff"):
        body = {"input": text, "model": "vectors", "overflow": "truncate"}
        assert ask(server.address, "/v1/embed", body).status == 200
    half = b'{"input": "\\ud800", "model": "vectors"}'
    assert ask(server.address, "/v1/embed", half).status in (200, 400)


def test_other_kinds_of_bodies(server: Any) -> None:
    refused = ask(server.address, "/v1/embed", b"<a/>", content_type="text/xml")
    assert kind(refused) == (415, "media_type")
    large = b'{"input": "' + b"a" * 5_000_000 + b'"}'
    assert kind(ask(server.address, "/v1/embed", large)) == (413, "body_too_large")


def raw(address: str, data: bytes, wait: float = 0.0) -> bytes:
    """Bytes to a server, and what it answers until it closes the connection."""
    place = urlsplit(address)
    with socket.create_connection((place.hostname, place.port), timeout=30) as connection:
        connection.sendall(data)
        time.sleep(wait)
        connection.shutdown(socket.SHUT_WR)
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def test_half_a_request_and_nonsense_end_one_connection_only(server: Any) -> None:
    head = b"POST /v1/embed HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{"
    raw(server.address, head)
    assert raw(server.address, b"\x16\x03\x01nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert ask(server.address, "/v1/embed", {"input": "film", "model": "vectors"}).status == 200


HEAD = b"GET /ready HTTP/1.1\r\nhost: localhost\r\n"
#: A body in chunks, after which further headers follow.
CHUNKED = b"POST /v1/embed HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (HEAD + b"x: aaaa\r\n" * 99 + b"\r\n", 200),
        (HEAD + b"x: aaaa\r\n" * 100 + b"\r\n", 431),
        (HEAD + b"x: " + b"a" * 65_000 + b"\r\n\r\n", 200),
        (HEAD + b"x: " + b"a" * 66_000 + b"\r\n\r\n", 431),
        (HEAD + b"x: " + b"a" * 66_000, 431),  # one that has not ended
        (b"GET /ready?" + b"a" * 65_000 + HEAD.removeprefix(b"GET /ready") + b"\r\n", 200),
        (b"GET /ready?" + b"a" * 66_000 + HEAD.removeprefix(b"GET /ready") + b"\r\n", 431),
    ],
)
def test_a_head_has_limits(server: Any, head: bytes, status: int) -> None:
    assert raw(server.address, head).startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (HEAD, b"x: aaaa\r\n" * 1000),
        (HEAD + b"x: ", b"a" * 8000),
        (b"GET /", b"a" * 8000),
        (b"", b"\r\n" * 4000),
        (CHUNKED, b"x: aaaa\r\n" * 1000),
        (CHUNKED + b"x: ", b"a" * 8000),
        (HEAD + b"\r\n" + HEAD + b"x: ", b"a" * 8000),  # of the second request
    ],
)
def test_a_head_without_an_end_is_not_read_on(server: Any, begun: bytes, more: bytes) -> None:
    place, sent, most = urlsplit(server.address), 0, 30_000_000  # far more than lies between two sockets
    with socket.create_connection((place.hostname, place.port), timeout=30) as connection:
        connection.sendall(begun)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while sent < most:
                connection.sendall(more)
                sent += len(more)
    assert sent < most
    assert ask(server.address, "/v1/embed", {"input": "film", "model": "vectors"}).status == 200


def test_a_slow_body_is_not_waited_for(tmp_path: Path) -> None:
    with serving(*save_models(tmp_path, ("vectors",)), body_timeout=0.2) as (_, address):
        head = b"POST /v1/embed HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 100\r\n\r\n{"
        assert raw(address, head, wait=0.5).startswith(b"HTTP/1.1 504")


def test_a_request_whose_head_never_ends_is_not_waited_for(tmp_path: Path) -> None:
    with serving(*save_models(tmp_path, ("vectors",)), body_timeout=0.2) as (_, address):
        place = urlsplit(address)
        begun = time.monotonic()
        for sent in (b"P", b"POST /v1/embed HTTP/1.1\r\nhost: loc", b"\r\n"):
            with socket.create_connection((place.hostname, place.port), timeout=30) as connection:
                connection.sendall(sent)
                assert connection.recv(100) == b"", "closed without a word"
        assert time.monotonic() - begun >= 0.6
        with socket.create_connection((place.hostname, place.port), timeout=0.5) as idle:
            with pytest.raises(TimeoutError):
                idle.recv(100)  # a connection that a client opened in advance is kept
            idle.settimeout(30)
            idle.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert idle.recv(100).startswith(b"HTTP/1.1 200")


def test_a_damaged_model_is_no_answer(tmp_path: Path) -> None:
    save_tiny(tmp_path / "bad")
    model = BertModel.from_pretrained(tmp_path / "bad")
    with torch.no_grad():
        model.encoder.layer[0].output.dense.weight.fill_(float("nan"))
    model.save_pretrained(tmp_path / "bad")
    good = save_models(tmp_path, ("labels",))
    with serving(f"bad={tmp_path / 'bad'}", *good) as (_, address):
        reply = ask(address, "/v1/embed", {"input": "film", "model": "bad"})
        assert kind(reply) == (424, "damaged_model")
        assert "not finite" in reply.body["error"]["message"]
        assert ask(address, "/v1/classify", {"input": "film"}).status == 200
        assert ask(address, "/ready").status == 503
        assert ask(address, "/health").status == 200


def slowed(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Each batch takes so long, beside what it computes."""
    computed = batcher_module.Batcher._computed

    def slowly(self: Any, batch: Any) -> Any:
        time.sleep(seconds)
        return computed(self, batch)

    monkeypatch.setattr(batcher_module.Batcher, "_computed", slowly)


def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """No batch is computed before the event is set."""
    computed, may_go_on = batcher_module.Batcher._computed, threading.Event()

    def waiting(self: Any, batch: Any) -> Any:
        assert may_go_on.wait(60)
        return computed(self, batch)

    monkeypatch.setattr(batcher_module.Batcher, "_computed", waiting)
    return may_go_on


def test_a_full_queue_refuses_at_once_and_says_when_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients, waiting, together = 24, 4, 16
    models = save_models(tmp_path, ("vectors",))
    with serving(*models, max_requests=waiting, max_batch_tokens=together) as (_, address):
        may_go_on = held(monkeypatch)
        with ThreadPoolExecutor(clients) as pool:
            sent = [pool.submit(ask, address, "/v1/embed", {"input": "a good film"}) for _ in range(clients)]
            # While nothing is computed, all are answered but those of one batch, of 5 tokens each, and those that wait.
            early = list(islice(as_completed(sent, timeout=60), clients - waiting - together // 5))
            assert not any(future.result().status == 200 for future in early)
            may_go_on.set()
        replies = [future.result() for future in sent]
    refused = [reply for reply in replies if reply.status != 200]
    assert len(early) <= len(refused) < clients
    for reply in refused:
        assert kind(reply) == (429, "overloaded")
        assert int(reply.headers["retry-after"]) >= 1
        assert int(reply.headers["retry-after-ms"]) >= 1


def test_nobody_computes_for_a_client_that_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(*save_models(tmp_path, ("vectors",)), max_batch_tokens=16) as (app, address):
        slowed(monkeypatch, 0.5)
        place = urlsplit(address)
        body = json.dumps({"input": "a good film"}).encode()
        head = f"POST /v1/embed HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        connections = [socket.create_connection((place.hostname, place.port)) for _ in range(6)]
        for connection in connections:
            connection.sendall(head + body)
        time.sleep(0.2)
        for connection in connections:
            connection.close()
        batcher = app.service.models.slots["vectors"].batcher
        assert batcher is not None
        deadline = time.monotonic() + 10
        while (len(batcher.queue) or batcher.running_seconds()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert batcher.counts.dropped >= 3
        assert app.service.open_requests == 0


def test_a_deadline_ends_the_wait_and_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(*save_models(tmp_path, ("vectors",))) as (_, address):
        may_go_on = held(monkeypatch)
        late = ask(address, "/v1/embed", {"input": "film", "timeout": 0.1})
        assert kind(late) == (504, "timeout")
        assert kind(ask(address, "/v1/embed", {"input": "film"}, x_request_timeout="50ms")) == (504, "timeout")
        may_go_on.set()  # only now: neither answer has waited for the work
        assert kind(ask(address, "/v1/embed", {"input": "film"}, x_request_timeout="soon")) == (422, "invalid")


def test_a_fault_of_ours_says_nothing_of_the_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(*save_models(tmp_path, ("vectors",))) as (_, address):

        def broken(self: Any, batch: Any) -> Any:
            raise RuntimeError("a secret of the inside")

        monkeypatch.setattr(batcher_module.Batcher, "_computed", broken)
        reply = ask(address, "/v1/embed", {"input": "film"})
    assert kind(reply) == (500, "fault")
    assert "secret" not in json.dumps(reply.body)


def test_a_fault_beside_the_computation_leaves_the_worker_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(*save_models(tmp_path, ("vectors",))) as (app, address):
        monkeypatch.setattr(app.metrics, "answer", lambda task, answer: 1 / 0)
        assert kind(ask(address, "/v1/embed", {"input": "film"})) == (500, "fault")
        monkeypatch.undo()
        assert ask(address, "/v1/embed", {"input": "film"}).status == 200


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"input": 5}, "input = 5: input should be a valid string or a valid list"),
        ({"input": [["a"]]}, "input.0 = ['a']: input should be a valid string or a valid integer"),
        ({}, "input: field required"),
    ],
)
def test_what_is_wrong_with_a_body_names_no_types_of_ours(server: Any, body: Any, said: str) -> None:
    message = ask(server.address, "/v1/embed", body).body["error"]["message"]
    assert said in message
    assert "list[" not in message


def test_a_wrong_method_is_refused_in_the_words_of_the_clients_of_its_path(server: Any) -> None:
    assert ask(server.address, "/v1/embeddings").body["error"]["code"] is None
    assert ask(server.address, "/embed").body["error_type"] == "Validation"


def test_head_is_a_get_without_its_body(server: Any) -> None:
    connection = HTTPConnection(urlsplit(server.address).netloc, timeout=60)
    connection.request("HEAD", "/health")
    reply = connection.getresponse()
    assert (reply.status, reply.read()) == (200, b"")
    connection.close()
