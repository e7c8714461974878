"""Bulk requests: any number of lines, each the body of a task's route, answered by a line each, in their order.

Lines are read, computed and answered at the same time. At most ``max_bulk_lines`` of them, and of their bytes as many
as one request may have, are on the way: then no more is read until the first of them is answered, so that memory stays
the same however many there are. A client that sends more than a connection buffers must therefore read while it sends,
as ``curl -T`` does. An answer has the number of its line, from 1; a line that cannot be answered has an error in its
answer, and the others are answered as usual. Empty lines are counted and not answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace

from bertkit.server.batcher import failure_of
from bertkit.server.calls import Call
from bertkit.server.dialects.route import NDJSON, Asked, Dialect, Reply, Route
from bertkit.server.failures import Failure
from bertkit.server.http.exchange import (
    ClientLeft,
    Receive,
    Scope,
    Send,
    check_media_type,
    client_of,
    parsed,
    refused,
    timeout_of,
)
from bertkit.server.service import PAUSE, Service

_MEDIA_TYPES = (NDJSON, "application/jsonl", "application/json-lines", "application/x-jsonlines")
#: Seconds that a client has to stop sending, after it was told that no more lines are read.
_FAREWELL = 1.0
#: Answers are sent together up to so many bytes.
_TOGETHER = 65_536
#: A reverse proxy passes each answer on as it comes.
_HEADERS = [(b"content-type", NDJSON.encode()), (b"x-accel-buffering", b"no"), (b"cache-control", b"no-store")]


async def answer_lines(
    service: Service, dialect: Dialect, route: Route, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer a bulk request; see the module.

    Raises:
        Failure: nothing was sent yet, and there is nothing to answer.
        ClientLeft: what was on the way is dropped.
    """
    check_media_type(scope, _MEDIA_TYPES)
    lines = _Lines(service, dialect, route, scope, receive, send)
    reading, submitting, writing = map(asyncio.ensure_future, (lines.read(), lines.submit(), lines.write()))
    ending = asyncio.ensure_future(lines.end_with_the_server(submitting, reading))
    try:
        await asyncio.wait((reading, submitting, writing, ending), return_when=asyncio.FIRST_EXCEPTION)
        for task in (writing, submitting, reading, ending):  # reading ends when the client leaves, or has all answers
            if task.done() and not task.cancelled():
                task.result()
            if writing.done():
                return
    finally:
        lines.drop()
        for task in (reading, submitting, writing, ending):
            task.cancel()
        await asyncio.gather(reading, submitting, writing, ending, return_exceptions=True)


class _Lines:
    """One bulk request."""

    def __init__(
        self, service: Service, dialect: Dialect, route: Route, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._service, self._dialect, self._route = service, dialect, route
        self._scope, self._receive, self._send = scope, receive, send
        self._settings, self._client, self._timeout = service.settings, client_of(scope), timeout_of(scope)
        #: Lines on the way: number, bytes, and the answer to come or the failure that is there already.
        self._waiting: deque[tuple[int, int, asyncio.Future[Reply] | Failure]] = deque()
        self._bytes = 0
        #: The last line that was submitted.
        self._taken = 0
        #: Parts of the body, with whether more will come.
        self._parts: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue(1)
        self._complete = False
        #: Whether more of the body will come.
        self._more = True
        #: Set when a line is added to those on the way, or taken from them.
        self._moved = asyncio.Event()

    def drop(self) -> None:
        """Nobody waits for the rest any more."""
        for _, _, outcome in self._waiting:
            if isinstance(outcome, asyncio.Future):
                outcome.cancel()

    async def read(self) -> None:
        """Read the body as fast as its lines are submitted, and notice when the client leaves."""
        while (message := await self._receive())["type"] != "http.disconnect":
            if self._more:
                self._more = message.get("more_body", False)
                await self._parts.put((message.get("body", b""), self._more))
            if self._more:
                await self._parts.join()
        raise ClientLeft

    async def submit(self) -> None:
        """Submit the lines as they come and there is room for them."""
        number = 0
        try:
            async for number, line in self._lines():
                if number % 16 == 0:
                    await asyncio.sleep(0)  # thousands of short lines may have come at once
                await self._until_room(len(line))
                self._add(number, len(line), await self._submitted(line))
            if not number:
                raise Failure("empty", "the body has no line: send a JSON object a line")
        except TimeoutError:
            seconds = self._settings.timeout
            self._add(number + 1, 0, Failure("timeout", f"no more of the body came within {seconds:g} seconds"))
        except asyncio.CancelledError:
            if not self._service.ending.is_set():
                raise
            said = "the server is shutting down: this line and those behind it were not read; send them again"
            self._add(self._taken + 1, 0, Failure("not_ready", said, retry_after=1.0))
        self._complete = True
        self._moved.set()

    async def end_with_the_server(self, *taking: asyncio.Future[None]) -> None:
        """When the server is to end, take no more lines: those that were taken are answered, and the rest is named."""
        await self._service.ending.wait()
        for task in taking:
            task.cancel()
        await asyncio.wait(taking)
        while (message := await self._receive())["type"] != "http.disconnect":
            self._more = message.get("more_body", False)
        raise ClientLeft

    async def write(self) -> None:
        """Send the answers in the order of the lines."""
        begun = False
        while self._waiting or not self._complete:
            if not self._waiting:
                self._moved.clear()
                await self._moved.wait()
                continue
            parts = [await self._next()]
            size = len(parts[0])
            while size < _TOGETHER and self._waiting and _is_there(self._waiting[0][2]):
                parts.append(await self._next())
                size += len(parts[-1])
            if not begun:
                await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                begun = True
            await self._sent(b"".join(parts), more=True)
        end = asyncio.get_running_loop().time() + _FAREWELL
        while self._more and asyncio.get_running_loop().time() < end:  # what it still sends would break the connection
            await asyncio.sleep(PAUSE)
        await self._sent(b"", more=False)

    async def _sent(self, body: bytes, *, more: bool) -> None:
        try:
            async with asyncio.timeout(self._settings.timeout):
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:  # it does not read
            raise ClientLeft from None

    async def _lines(self) -> AsyncIterator[tuple[int, bytes]]:
        """The lines with their numbers, without empty ones; of one that is too long so much that this can be seen."""
        number, rest, more, most = 0, b"", True, self._settings.max_body_bytes
        while more:
            async with asyncio.timeout(self._settings.timeout):
                part, more = await self._parts.get()
            *lines, rest = (rest + part).split(b"\n")
            if not more:
                lines.append(rest)
            rest = rest[: most + 1]
            for line in lines:
                number += 1
                if line.strip():
                    yield number, line
            self._parts.task_done()

    async def _until_room(self, size: int) -> None:
        limits = self._settings
        while self._waiting and (
            len(self._waiting) >= limits.max_bulk_lines or self._bytes + size > limits.max_body_bytes
        ):
            self._moved.clear()
            await self._moved.wait()

    def _add(self, number: int, size: int, outcome: asyncio.Future[Reply] | Failure) -> None:
        self._waiting.append((number, size, outcome))
        self._taken = number
        self._bytes += size
        self._moved.set()

    async def _submitted(self, line: bytes) -> asyncio.Future[Reply] | Failure:
        """The answer to come of a line, once the queue has room for it; or why there will be none."""
        most = self._settings.max_body_bytes
        if len(line) > most:
            return Failure("body_too_large", f"the line has more than {most:,} bytes, the limit of this server")
        try:
            _, route, body = await parsed([(self._dialect, self._route, frozenset())], line)
            planned = route.plan(Asked(body))
            call = planned.call
            assert isinstance(call, Call)
            call = replace(call, bulk=True, timeout=call.timeout or self._timeout)
            end = asyncio.get_running_loop().time() + self._settings.timeout
            while True:
                try:
                    return self._service.submit(call, planned.render, self._client)
                except Failure as failure:
                    late = asyncio.get_running_loop().time() > end
                    if late or failure.kind not in ("overloaded", "not_ready"):
                        raise
                await asyncio.sleep(PAUSE)
        except Exception as error:
            return failure_of(error)

    async def _next(self) -> bytes:
        """The answer of the first line that is on the way, as a line."""
        number, size, outcome = self._waiting[0]
        if isinstance(outcome, Failure):
            reply = refused(self._dialect, outcome, self._scope, self._settings)
        else:
            try:
                reply = await outcome
            except Failure as failure:
                reply = refused(self._dialect, failure, self._scope, self._settings)
        self._waiting.popleft()
        self._bytes -= size
        self._moved.set()
        return b'{"line":%d,%b\n' % (number, reply.body[1:])


def _is_there(outcome: asyncio.Future[Reply] | Failure) -> bool:
    return isinstance(outcome, Failure) or outcome.done()
