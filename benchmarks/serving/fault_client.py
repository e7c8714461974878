"""Clients that check every answer: what they sent, what came back, and whether it is what was computed before."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: Seconds after which a request without an answer hangs.
MOST_SECONDS = 60.0
#: Largest difference of a number of a vector: an answer depends on its neighbours in a batch by rounding.
CLOSE = 1e-4


@dataclass(frozen=True, slots=True)
class Query:
    """A request, and whether a status and a body answer it."""

    path: str
    body: bytes
    right: Callable[[int, bytes], bool]


@dataclass
class Tally:
    """What became of requests.

    broken: connections that ended without an answer; refused: 429 and 503; wrong: anything else that is not right,
        among it what took too long.
    """

    right: int = 0
    wrong: int = 0
    refused: int = 0
    broken: int = 0
    left: int = 0
    examples: Counter[str] = field(default_factory=Counter)

    @property
    def sent(self) -> int:
        return self.right + self.wrong + self.refused + self.broken + self.left

    @property
    def unanswered(self) -> int:
        return self.refused + self.broken


class Connection:
    """One connection, opened when it is needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def send(self, path: str, body: bytes | None, **headers: str) -> None:
        """A whole request; of None a GET."""
        if self._writer is None:
            await self.open()
        assert self._writer is not None
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        method = "GET" if body is None else "POST"
        size = "" if body is None else f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self._writer.write(f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{size}{more}\r\n".encode() + (body or b""))
        await self._writer.drain()

    async def receive(self) -> tuple[int, bytes]:
        """A whole answer; ConnectionError or IncompleteReadError where there is none."""
        assert self._reader is not None
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        lines = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        body = await self._reader.readexactly(int(lines.get("content-length", 0)))
        if lines.get("connection") == "close":
            self.close()
        return int(head[9:12]), body

    async def ask(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        await self.send(path, body, **headers)
        return await self.receive()


async def tallied(tally: Tally, query: Query, connection: Connection) -> None:
    """Send a query, and count what becomes of it."""
    try:
        status, body = await asyncio.wait_for(connection.ask(query.path, query.body), MOST_SECONDS)
    except (OSError, asyncio.IncompleteReadError) as error:
        connection.close()
        tally.broken += 1
        tally.examples[type(error).__name__] += 1
        return
    except TimeoutError:
        connection.close()
        tally.wrong += 1
        tally.examples["no answer"] += 1
        return
    if query.right(status, body):
        tally.right += 1
    elif status in (429, 503):
        tally.refused += 1
    else:
        tally.wrong += 1
        tally.examples[f"{status} {body[:80]!r}"] += 1


class Load:
    """Clients that send queries by chance, one after another, until they are told to stop.

    afresh: each request has a connection of its own.
    leaving: share of requests whose client closes the connection at once.
    """

    def __init__(
        self, port: int, queries: Sequence[Query], clients: int, *, afresh: bool = False, leaving: float = 0.0
    ) -> None:
        self.tally = Tally()
        self._port, self._queries, self._afresh, self._leaving = port, queries, afresh, leaving
        self._stopping = False
        self._tasks = [asyncio.ensure_future(self._client(number)) for number in range(clients)]

    async def _client(self, number: int) -> None:
        chance, connection = random.Random(number), Connection(self._port)
        while not self._stopping:
            query = chance.choice(self._queries)
            if chance.random() < self._leaving:
                await connection.send(query.path, query.body)
                connection.close()
                self.tally.left += 1
                continue
            broken = self.tally.broken
            await tallied(self.tally, query, connection)
            if self._afresh:
                connection.close()
            if self.tally.broken > broken:
                await asyncio.sleep(0.01)
        connection.close()

    async def stop(self) -> Tally:
        """When all of them have their last answer."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        return self.tally


def vectors_right(*expected: np.ndarray) -> Callable[[int, bytes], bool]:
    """Whether an answer of /v1/embed in base64 has the vectors ``(n, D)``, or those of one of several models."""

    def right(status: int, body: bytes) -> bool:
        if status != 200:
            return False
        found = np.stack([np.frombuffer(base64.b64decode(one), "<f4") for one in json.loads(body)["results"]])
        return any(found.shape == one.shape and float(np.abs(found - one).max()) < CLOSE for one in expected)

    return right


def refused_as(status: int, kind: str) -> Callable[[int, bytes], bool]:
    """Whether an answer is an error of bertkit's own routes."""
    return lambda given, body: given == status and json.loads(body)["error"]["type"] == kind


def embedding(texts: Sequence[str], model: str, right: Callable[[int, bytes], bool], **fields: Any) -> Query:
    """A request for vectors."""
    body = {"model": model, "input": list(texts), "encoding": "base64", **fields}
    return Query("/v1/embed", json.dumps(body).encode(), right)


async def until(true: Callable[[], Any], seconds: float = 60.0) -> float:
    """Seconds until an asynchronous or plain condition holds; TimeoutError if it does not in time."""
    begun = time.monotonic()
    while True:
        found = true()
        if await found if asyncio.iscoroutine(found) else found:
            return time.monotonic() - begun
        if time.monotonic() - begun > seconds:
            raise TimeoutError(f"not within {seconds:g} seconds")
        await asyncio.sleep(0.02)
