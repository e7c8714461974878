"""A server with tiny models, and a client for it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from bertkit import (
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForNextSentencePrediction,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from bertkit.server import batcher as batcher_module
from bertkit.server.app import ServerApp
from bertkit.server.calls import Answer
from bertkit.server.running import in_thread
from bertkit.server.service import Service
from bertkit.server.settings import ServeSettings
from pipeline_helpers import save_tiny

LABELS = {"id2label": {0: "bad", 1: "good", 2: "dull"}}
TAGS = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}}
NLI = {"id2label": {0: "contradiction", 1: "neutral", 2: "entailment"}}
NDJSON = {"content_type": "application/x-ndjson"}
#: Tiny models by name: class and settings.
MODELS: Mapping[str, tuple[type[Any], Mapping[str, Any]]] = {
    "labels": (BertForSequenceClassification, LABELS),
    "vectors": (BertModel, {}),
    "tags": (BertForTokenClassification, TAGS),
    "answers": (BertForQuestionAnswering, {}),
    "choices": (BertForMultipleChoice, {}),
    "masks": (BertForMaskedLM, {}),
    "next": (BertForNextSentencePrediction, {}),
    "ranks": (BertForSequenceClassification, {"id2label": {0: "relevance"}}),
    "nli": (BertForSequenceClassification, NLI),
}


class Reply(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def results(self) -> Any:
        """Of bertkit's own routes."""
        assert self.status == 200, self.body
        return self.body["results"]


def save_models(folder: Path, names: tuple[str, ...] = tuple(MODELS)) -> list[str]:
    """The models in ``folder``, as ``bertkit serve`` takes them."""
    return [f"{name}={save_tiny(folder / name, MODELS[name][0], **MODELS[name][1])}" for name in names]


@contextmanager
def serving(*models: str, **settings: Any) -> Iterator[tuple[ServerApp, str]]:
    """A server in this process, with its address."""
    app = ServerApp(ServeSettings(models=models, port=0, log="none", **settings))
    with in_thread(app) as address:
        yield app, address


def ask(address: str, path: str, body: Any = None, **headers: str) -> Reply:
    """GET, or POST of an object as JSON or of bytes as they are."""
    place = urlsplit(address)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    usual = {"content-type": "application/json"} if body is not None else {}
    connection.request("GET" if body is None else "POST", path, sent, {**usual, **named})
    found = connection.getresponse()
    content = found.read()
    connection.close()
    kind = found.headers.get("content-type", "")
    parsed = json.loads(content) if content and kind.startswith("application/json") else content
    return Reply(found.status, {name.lower(): value for name, value in found.headers.items()}, parsed)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def body_of(*bodies: Any) -> bytes:
    """Objects, or bytes as they are, a line each."""
    return b"".join((each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n" for each in bodies)


def lines_of(reply: Reply) -> list[Any]:
    """The answers of a bulk request."""
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.body.splitlines()]


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No batch is computed before the event is set; at the end it is."""
    computed, may_go_on = batcher_module.Batcher._computed, threading.Event()

    def waiting(self: Any, batch: Any) -> Any:
        assert may_go_on.wait(60)
        return computed(self, batch)

    monkeypatch.setattr(batcher_module.Batcher, "_computed", waiting)
    try:
        yield may_go_on
    finally:
        may_go_on.set()


def with_service(
    folder: Path, names: tuple[str, ...], use: Callable[[Service], Awaitable[None]], **settings: Any
) -> None:
    """Use a service in an event loop of its own."""
    service = Service(ServeSettings(models=tuple(save_models(folder, names)), log="none", precision="fp32", **settings))
    assert service.models.load_all()

    async def run() -> None:
        await use(service)

    try:
        asyncio.run(run())
    finally:
        assert service.models.stop(20)


def itself(answer: Answer) -> Answer:
    return answer
