"""Bulk requests: an answer for each line, in their order, as they come, and no more read than there is room for."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from bertkit.server import batcher as batcher_module
from server_helpers import NDJSON, Reply, ask, body_of, lines_of, save_models, serving

WORDS = ("a", "good", "bad", "film", "very", "dull", "the", "end")


def text_of(number: int) -> str:
    return " ".join(WORDS[(number >> shift) % 8] for shift in range(0, 12, 3))


class Stream:
    """A bulk request whose lines are sent and answered bit by bit."""

    def __init__(self, address: str, path: str) -> None:
        place = urlsplit(address)
        self.socket = socket.create_connection((place.hostname, place.port), timeout=30)
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
        self.socket.sendall(head.encode())
        self.reader = self.socket.makefile("rb")
        self.status = 0

    def send(self, part: bytes) -> None:
        self.socket.sendall(b"%x\r\n%b\r\n" % (len(part), part))

    def end(self) -> None:
        self.socket.sendall(b"0\r\n\r\n")

    def answers(self) -> Iterator[Any]:
        self.status = int(self.reader.readline().split()[1])
        while self.reader.readline().strip():
            pass
        rest = b""
        while size := int(self.reader.readline(), 16):
            *lines, rest = (rest + self.reader.read(size)).split(b"\n")
            self.reader.readline()
            yield from map(json.loads, lines)
        assert not rest

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


def test_lines_are_answered_as_single_requests(server: Any) -> None:
    texts = [text_of(number) for number in range(300)]
    bodies = [{"input": text, "model": "vectors"} for text in texts]
    found = lines_of(ask(server.address, "/v1/bulk/embed", body_of(*bodies), **NDJSON))
    assert [each["line"] for each in found] == list(range(1, 301))
    single = [ask(server.address, "/v1/embed", body).results[0] for body in bodies[:20]]
    np.testing.assert_allclose([each["results"][0] for each in found[:20]], single, atol=1e-5)
    assert found[0].keys() == {"line", "model", "results", "truncated", "usage"}


@pytest.mark.parametrize(
    ("task", "body"),
    [
        ("classify", {"input": ["a good film", ["not", "bad"]], "model": "labels"}),
        ("tag", {"input": "a good film", "model": "tags"}),
        ("fill-mask", {"input": "a [MASK] film", "model": "masks"}),
        ("answer", {"input": {"question": "what", "context": "a good film"}, "model": "answers"}),
        ("choose", {"input": {"context": "a film", "choices": ["the end", "bad"]}, "model": "choices"}),
        ("similarity", {"source": "a film", "sentences": ["the end"], "model": "vectors"}),
        ("tokenize", {"input": "a film", "model": "vectors"}),
    ],
)
def test_every_task_has_lines(server: Any, task: str, body: Any) -> None:
    (found,) = lines_of(ask(server.address, f"/v1/bulk/{task}", body_of(body), **NDJSON))
    assert found["results"]


def test_a_bad_line_fails_alone(server: Any) -> None:
    good = {"input": "a good film", "model": "masks"}
    mask = {"input": "a [MASK] film", "model": "masks"}
    lines = [mask, b"{", b"", good, {"inputs": "a"}, {"input": " "}, b"[1]", {**mask, "model": "mask"}, mask, b"\xff"]
    found = lines_of(ask(server.address, "/v1/bulk/fill-mask", body_of(*lines), **NDJSON))
    kinds = [(each["line"], each.get("error", {}).get("type")) for each in found]
    assert kinds == [
        (1, None),
        (2, "malformed"),
        (4, "invalid"),
        (5, "invalid"),
        (6, "empty"),
        (7, "invalid"),
        (8, "unknown_model"),
        (9, None),
        (10, "malformed"),
    ]
    assert "[MASK]" in found[2]["error"]["message"]
    assert found[0]["results"] == found[7]["results"]


def test_a_last_line_needs_no_newline_and_windows_newlines_are_fine(server: Any) -> None:
    line = json.dumps({"input": "a", "model": "vectors"}).encode()
    found = lines_of(ask(server.address, "/v1/bulk/embed", line + b"\r\n\r\n" + line, **NDJSON))
    assert [each["line"] for each in found] == [1, 3]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "said"),
    [
        ("/v1/bulk/embed", b"", NDJSON, 422, "no line"),
        ("/v1/bulk/embed", b"\n \n", NDJSON, 422, "no line"),
        ("/v1/bulk/nothing", b"{}", NDJSON, 404, "/v1/bulk/nothing"),
        ("/v1/bulk/embed", b"{}", {"content_type": "text/csv"}, 415, "application/x-ndjson"),
        ("/v1/bulk/embed", b"{}", {**NDJSON, "x_request_timeout": "soon"}, 422, "X-Request-Timeout"),
        ("/v1/embed", b"{}", NDJSON, 415, "application/json"),
    ],
)
def test_what_is_no_bulk_request(
    server: Any, path: str, body: bytes, headers: dict[str, str], status: int, said: str
) -> None:
    reply = ask(server.address, path, body, **headers)
    assert reply.status == status
    assert said in reply.body["error"]["message"]


def test_a_line_that_is_too_long_is_not_kept(tmp_path: Path) -> None:
    with serving(*save_models(tmp_path, ("vectors",)), max_body_bytes=2000) as (_, address):
        lines = body_of({"input": "a"}, b"x" * 300_000, {"input": "a"})
        found = lines_of(ask(address, "/v1/bulk/embed", lines, **NDJSON))
        assert [each.get("error", {}).get("type") for each in found] == [None, "body_too_large", None]


def test_answers_come_before_the_last_line_is_sent(server: Any) -> None:
    stream = Stream(server.address, "/v1/bulk/embed")
    stream.send(body_of({"input": "a film", "model": "vectors"}))
    answers = stream.answers()
    assert next(answers)["line"] == 1
    stream.send(b'{"input": "a fi')
    stream.send(body_of(b'lm", "model": "vectors"}'))
    assert next(answers)["line"] == 2
    stream.end()
    assert list(answers) == []
    stream.close()


def slowed(monkeypatch: pytest.MonkeyPatch, seconds: float, seen: list[int]) -> None:
    """Each batch takes so long, beside what it computes; ``seen`` gets its number of requests."""
    computed = batcher_module.Batcher._computed

    def slowly(self: Any, batch: Any) -> Any:
        seen.append(len(batch))
        time.sleep(seconds)
        return computed(self, batch)

    monkeypatch.setattr(batcher_module.Batcher, "_computed", slowly)


def test_no_more_is_read_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a client that does not read, a few lines are computed, and it can send no more."""
    limits = {"max_bulk_lines": 4, "max_batch_tokens": 64, "grace": 0.5}
    with serving(*save_models(tmp_path, ("vectors",)), **limits) as (app, address):
        seen: list[int] = []
        slowed(monkeypatch, 0.05, seen)
        stream = Stream(address, "/v1/bulk/embed")
        part = body_of(*[{"input": text_of(number), "tokens": True} for number in range(100)])
        sent = 0
        stream.socket.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while sent < 100_000_000:
                stream.send(part)
                sent += len(part)
        queue = app.service.models.slots["vectors"].batcher.queue  # type: ignore[union-attr]
        assert len(queue) <= 4
        assert sum(seen) < 500
        assert sent < 20_000_000, "the buffers of a connection"
        stream.close()


def test_a_full_queue_is_waited_for_and_leaves_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"max_requests": 4, "max_batch_tokens": 16}
    with serving(*save_models(tmp_path, ("vectors",)), **limits) as (_, address):
        slowed(monkeypatch, 0.01, [])
        lines = body_of(*[{"input": text_of(number)} for number in range(60)])
        replies: list[Reply] = []
        bulk = threading.Thread(target=lambda: replies.append(ask(address, "/v1/bulk/embed", lines, **NDJSON)))
        bulk.start()
        while bulk.is_alive():
            assert ask(address, "/v1/embed", {"input": "a film"}).status == 200
        bulk.join()
        assert all("results" in each for each in lines_of(replies[0]))


def test_interactive_requests_go_before_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(*save_models(tmp_path, ("vectors",)), max_batch_tokens=16) as (_, address):
        seen: list[int] = []
        slowed(monkeypatch, 0.05, seen)
        stream = Stream(address, "/v1/bulk/embed")
        stream.send(body_of(*[{"input": text_of(number)} for number in range(50)]))
        answers = stream.answers()
        next(answers)
        assert ask(address, "/v1/embed", {"input": "a film"}).status == 200
        assert len(seen) < 40, "not behind about 50 batches"
        stream.end()
        assert len(list(answers)) == 49
        stream.close()


@pytest.mark.parametrize("ended", [False, True])
def test_a_client_that_leaves_takes_its_lines_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    with serving(*save_models(tmp_path, ("vectors",)), max_batch_tokens=16) as (app, address):
        seen: list[int] = []
        slowed(monkeypatch, 0.05, seen)
        stream = Stream(address, "/v1/bulk/embed")
        stream.send(body_of(*[{"input": text_of(number)} for number in range(100)]))
        if ended:
            stream.end()
        assert next(stream.answers())["line"] == 1
        stream.close()
        deadline = time.monotonic() + 10
        while app.service.open_requests and time.monotonic() < deadline:
            time.sleep(0.02)
        computed = sum(seen)
        time.sleep(0.3)
        assert app.service.open_requests == 0
        assert sum(seen) <= computed + 2 < 50


def test_a_client_that_sends_no_more_is_told_so(tmp_path: Path) -> None:
    with serving(*save_models(tmp_path, ("vectors",)), timeout=0.3) as (_, address):
        stream = Stream(address, "/v1/bulk/embed")
        stream.send(body_of({"input": "a film"}))
        found = list(stream.answers())
        assert [(each["line"], each.get("error", {}).get("type")) for each in found] == [(1, None), (2, "timeout")]
        stream.close()


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def in_bulk(address: str, path: str, bodies: Iterable[Any]) -> Iterator[Any]:
    """Answers of a bulk request that is sent by a thread while they are read."""
    stream = Stream(address, path)

    def send() -> None:
        part = b""
        for body in bodies:
            part += body_of(body)
            if len(part) > 30_000:
                stream.send(part)
                part = b""
        stream.send(part)
        stream.end()

    sender = threading.Thread(target=send)
    sender.start()
    yield from stream.answers()
    sender.join()
    stream.close()


@pytest.mark.campaign
@pytest.mark.slow
def test_memory_is_flat_for_many_lines(tmp_path: Path) -> None:
    def send(address: str, count: int) -> None:
        bodies = ({"input": text_of(number)} for number in range(count))
        for number, answer in enumerate(in_bulk(address, "/v1/bulk/tokenize", bodies), start=1):
            assert answer["line"] == number
            assert "results" in answer
        assert number == count

    with serving(*save_models(tmp_path, ("vectors",))) as (_, address):
        send(address, 3000)
        before = resident()
        send(address, 20_000)
        assert resident() - before < 20_000_000, "of 20,000 lines, whose answers have 8 MB"
