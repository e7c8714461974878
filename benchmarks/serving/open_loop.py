"""Requests that come when they are due, whether the server keeps up or not, with exponential gaps between them.

    python open_loop.py http://127.0.0.1:8080/v1/embeddings bodies.txt --rate 2000 --seconds 20

Prints one JSON object: by status, how many answers there were, and the 50th, 99th and 100th percentile of their
milliseconds, counted from when the request was due.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

HEAD = "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n"


class Connection(asyncio.Protocol):
    """One connection, with at most one request on it; calls ``done(self, status)``, 0 for one that broke."""

    def __init__(self, done: Callable[[Connection, int], None]) -> None:
        self.done, self.data, self.due = done, b"", 0.0
        self.transport: asyncio.Transport | None = None
        self.waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # uvloop's has another base

    def send(self, request: bytes, due: float) -> None:
        """Ask."""
        assert self.transport is not None
        self.data, self.due, self.waiting = b"", due, True
        self.transport.write(request)

    @property
    def closed(self) -> bool:
        """Whether nothing can be asked on it any more."""
        return self.transport is None or self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, end, body = self.data.partition(b"\r\n\r\n")
        if not end:
            return
        size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(body) >= size:
            self.waiting = False
            self.done(self, int(head[9:12]))

    def connection_lost(self, error: Exception | None) -> None:
        if self.waiting:
            self.waiting = False
            self.done(self, 0)


async def run(url: str, bodies: list[str], rate: float, seconds: float) -> dict[int, list[float]]:
    """By status, milliseconds of the answers to what was sent."""
    loop, place = asyncio.get_running_loop(), urlsplit(url)
    head = HEAD.format(path=place.path, host=place.netloc, size="{size}")
    requests = [head.format(size=len(body.encode())).encode() + body.encode() for body in bodies]
    free: list[Connection] = []
    found: dict[int, list[float]] = defaultdict(list)
    tasks: set[asyncio.Task[None]] = set()  # or the loop would be the only one to know them
    open_requests = 0

    def done(connection: Connection, status: int) -> None:
        nonlocal open_requests
        open_requests -= 1
        found[status].append((loop.time() - connection.due) * 1000)
        if status:
            free.append(connection)

    async def ask(due: float) -> None:
        nonlocal open_requests
        open_requests += 1
        while free and free[-1].closed:  # by the server, as nothing was asked on it for long
            free.pop()
        if free:
            connection = free.pop()
        else:
            try:
                _, connection = await loop.create_connection(lambda: Connection(done), place.hostname, place.port)
            except OSError:
                open_requests -= 1
                found[0].append((loop.time() - due) * 1000)
                return
        connection.send(random.choice(requests), due)

    due = begun = loop.time()
    while due < begun + seconds:
        due += random.expovariate(rate)
        if (pause := due - loop.time()) > 0:
            await asyncio.sleep(pause)
        tasks.add(task := loop.create_task(ask(due)))
        task.add_done_callback(tasks.discard)
    while open_requests and loop.time() < begun + seconds + 10:
        await asyncio.sleep(0.05)
    found[0] += [60_000.0] * open_requests
    return found


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("bodies", type=Path)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    bodies = given.bodies.read_text(encoding="utf-8").splitlines()
    found = uvloop.run(run(given.url, bodies, given.rate, given.seconds))
    report = {}
    for status, times in sorted(found.items()):
        times.sort()
        if times:
            report[status] = {
                "answers": len(times),
                "p50": times[len(times) // 2],
                "p99": times[int(len(times) * 0.99)],
                "most": times[-1],
            }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
