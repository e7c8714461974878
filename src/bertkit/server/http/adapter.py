"""From ASGI requests to the routes of the dialects and back: bodies with limits, clients that leave, failures."""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from pydantic import ValidationError

from bertkit.server.batcher import failure_of
from bertkit.server.calls import Answer, Call, Look
from bertkit.server.dialects.route import JSON, Asked, Body, Dialect, Planned, Reply, Route
from bertkit.server.failures import Failure
from bertkit.server.service import Service
from bertkit.system.console import say
from bertkit.system.validated_settings import explain_validation

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
#: The routes of one method and path, of which the keys of the body choose.
Choices = Sequence[tuple[Dialect, Route, frozenset[str]]]
#: Bodies of more bytes are parsed in a thread, because they would hold up the event loop.
_LARGE = 100_000
#: Seconds before its deadline as a client writes them; see :func:`_timeout_of`.
_TIMEOUT = re.compile(rb"(\d+(?:\.\d+)?)\s*(ms|s)?")
_CONTENT_TYPES = (b"application/json", b"text/json", b"application/x-www-form-urlencoded")


class ClientLeft(Exception):  # noqa: N818  (nothing went wrong here)
    """The client closed its connection before the answer."""


class Adapter:
    """The routes as an ASGI application.

    routes: by method and path.
    fallback: the dialect in which a path that does not exist is refused.
    """

    def __init__(
        self, service: Service, routes: Mapping[tuple[str, str], Choices], fallback: Dialect, other: App | None = None
    ) -> None:
        self._service, self._fallback, self._other = service, fallback, other
        self._exact = {place: found for place, found in routes.items() if "{model}" not in place[1]}
        self._patterns = [
            (method, re.compile(re.escape(path).replace(r"\{model\}", "(.+)")), found)
            for (method, path), found in sorted(routes.items(), key=lambda item: -len(item[0][1]))
            if "{model}" in path
        ]
        self._paths = {path for _, path in self._exact}
        self._settings = service.settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found, model = self._routes_of(scope["method"], scope["path"])
        dialect = found[0][0] if found else self._fallback
        try:
            if not found:
                raise self._no_route(scope)
            body = None
            route = found[0][1]
            if any(route.body for _, route, _ in found):
                dialect, route, body = await self._read(found, scope, receive)
            reply = await self._reply(dialect, route, Asked(body, model), scope, receive)
        except ClientLeft:
            return
        except Failure as failure:
            reply = self._refused(dialect, failure, scope)
        except Exception as error:  # a fault of ours, of which the client learns no more than that
            reply = self._refused(dialect, failure_of(error), scope)
        await self._send(reply, send)

    def _routes_of(self, method: str, path: str) -> tuple[Choices, str | None]:
        found = self._exact.get((method, path))
        if found is not None:
            return found, None
        for its, pattern, choices in self._patterns:
            if its == method and (match := pattern.fullmatch(path)):
                return choices, match[1]
        return (), None

    def _no_route(self, scope: Scope) -> Failure:
        path = scope["path"]
        if path in self._paths or any(pattern.fullmatch(path) for _, pattern, _ in self._patterns):
            return Failure("method", f"{path} does not take {scope['method']}")
        return Failure("no_route", f"there is no {scope['method']} {path:.200}; /openapi.json lists what there is")

    async def _read(self, found: Choices, scope: Scope, receive: Receive) -> tuple[Dialect, Route, Body]:
        kind = header(scope, b"content-type").partition(b";")[0].strip().lower()
        if kind and kind not in _CONTENT_TYPES:
            raise Failure("media_type", f"expected a body of {JSON}, got {kind.decode('latin-1'):.80}")
        raw = await self._body(scope, receive)
        try:
            values = orjson.loads(raw) if len(raw) < _LARGE else await asyncio.to_thread(orjson.loads, raw)
        except orjson.JSONDecodeError as error:
            raise Failure("malformed", f"the body is not JSON: {error}") from None
        dialect, route, _ = found[0]
        if len(found) > 1:
            keys = values.keys() if isinstance(values, dict) else frozenset[str]()
            fitting = [each for each in found if each[2] & keys]
            if len(fitting) > 1:
                both = " and ".join(sorted(each[2] & keys)[0] for each in fitting)
                raise Failure("invalid", f"the body has {both}, which belong to different requests")
            dialect, route, _ = fitting[0] if fitting else found[0]
        assert route.body is not None
        try:
            return dialect, route, route.body.model_validate(values)
        except ValidationError as error:
            place = error.errors(include_url=False, include_input=False)[0]["loc"]
            failure = Failure(
                "invalid", explain_validation(error, route.body.model_fields), param=str(place[0]) if place else None
            )
            failure.dialect = dialect
            raise failure from None

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        most = self._settings.max_body_bytes
        said = header(scope, b"content-length")
        large = Failure("body_too_large", f"the body has more than {most:,} bytes, the limit of this server")
        if said.isdigit() and int(said) > most:
            raise large
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._settings.body_timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientLeft
                    part = message.get("body", b"")
                    size += len(part)
                    if size > most:
                        raise large
                    parts.append(part)
                    if not message.get("more_body", False):
                        return parts[0] if len(parts) == 1 else b"".join(parts)
        except TimeoutError:
            raise Failure(
                "timeout", f"the body did not arrive within {self._settings.body_timeout:g} seconds"
            ) from None

    async def _reply(self, dialect: Dialect, route: Route, asked: Asked, scope: Scope, receive: Receive) -> Reply:
        if route.needs_facts:
            name = asked.model or getattr(asked.body, "model", None)
            asked = replace(asked, facts=self._service.look(Look(model=name)).models[0])
        planned = route.plan(asked)
        call = planned.call
        if isinstance(call, Look):
            reply: Reply = planned.render(self._service.look(call))
            return reply
        if (seconds := _timeout_of(scope)) is not None:
            call = replace(call, timeout=seconds if call.timeout is None else min(seconds, call.timeout))
        return await self._computed(dialect, call, planned, scope, receive)

    async def _computed(self, dialect: Dialect, call: Call, planned: Planned, scope: Scope, receive: Receive) -> Reply:
        """The reply to a call, unless its client leaves before: then its work is dropped."""

        def render(answer: Answer) -> Reply:
            reply: Reply = planned.render(answer)
            cut = sum(answer.truncated)
            more = dict(dialect.headers(answer))
            if cut:
                more["x-truncated"] = str(cut)
            return replace(reply, headers={**reply.headers, **more}) if more else reply

        answer = asyncio.ensure_future(self._service.answer(call, render, client_of(scope)))
        leaving = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait((answer, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ClientLeft
            return answer.result()
        finally:
            leaving.cancel()
            answer.cancel()

    def _refused(self, dialect: Dialect, failure: Failure, scope: Scope) -> Reply:
        if failure.kind == "fault":
            cause = failure.__cause__ or failure
            shown = "".join(traceback.format_exception(cause))
            say(f"a fault at {scope['method']} {scope['path']}:\n{shown}")
        return (failure.dialect or dialect).refusal(failure)

    async def _send(self, reply: Reply, send: Send) -> None:
        headers = [
            (b"content-type", reply.media_type.encode()),
            (b"content-length", str(len(reply.body)).encode()),
            *((name.encode(), value.encode()) for name, value in reply.headers.items()),
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def client_of(scope: Scope) -> str:
    """Whose turn in the queue a request uses: that of its key, else of its address."""
    key: str | None = scope.get("bertkit.key")
    address = scope.get("client")
    return key if key is not None else address[0] if address else ""


def header(scope: Scope, name: bytes) -> bytes:
    """The value of a header; empty where there is none."""
    return next((value for key, value in scope["headers"] if key == name), b"")


def _timeout_of(scope: Scope) -> float | None:
    """Seconds, of ``X-Request-Timeout``: a number of seconds, or with ``ms`` of milliseconds."""
    said = header(scope, b"x-request-timeout")
    if not said:
        return None
    found = _TIMEOUT.fullmatch(said.strip())
    seconds = 0.0 if found is None else float(found[1]) / (1000 if found[2] == b"ms" else 1)
    if not 0 < seconds <= 86_400:
        raise Failure("invalid", f"X-Request-Timeout must be seconds above 0, got {said.decode('latin-1')!r:.80}")
    return seconds
