"""What every exchange with a client has: ASGI's types, a request's head, its body as a dialect reads it, refusals."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping, Sequence
from typing import Any

import orjson
from pydantic import ValidationError

from bertkit.server import log
from bertkit.server.dialects.route import Body, Dialect, Reply, Route
from bertkit.server.failures import Failure
from bertkit.server.settings import ServeSettings
from bertkit.system.typed_values import MISSING, Finding, explain

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
#: Where a scope holds what counts refusals.
REJECTED = "bertkit.rejected"
#: Where a scope has the id of its request, and what it asks of a model.
ID, TEXTS = "bertkit.id", "bertkit.texts"
#: The routes of one method and path, of which the keys of the body choose.
Choices = Sequence[tuple[Dialect, Route, frozenset[str]]]
#: Bodies of more bytes are parsed in a thread, because they would hold up the event loop.
_LARGE = 100_000
#: Seconds as a client writes them; see :func:`timeout_of`.
_SECONDS = re.compile(rb"(\d+(?:\.\d+)?)\s*(ms|s)?")

#: Types of JSON's values, and what pydantic says of objects, in plain words.
_KINDS = {list: "a list", str: "a string", int: "a number", float: "a number", bool: "a boolean", type(None): "null"}
_EXPECTED = dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "input should be an object")


class ClientLeft(Exception):  # noqa: N818  (nothing went wrong here)
    """The client closed its connection before the answer."""


def header(scope: Scope, name: bytes) -> bytes:
    """The value of a header; empty where there is none."""
    return next((value for key, value in scope["headers"] if key == name), b"")


async def body_of(scope: Scope, receive: Receive, settings: ServeSettings) -> bytes:
    """The body of a request.

    Raises:
        Failure: it is too large, or does not arrive in time.
        ClientLeft: it does not arrive at all.
    """
    most = settings.max_body_bytes
    said = header(scope, b"content-length")
    large = Failure("body_too_large", f"the body has more than {most:,} bytes, the limit of this server")
    if said.isdigit() and int(said) > most:
        raise large
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(settings.body_timeout):
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
        raise Failure("timeout", f"the body did not arrive within {settings.body_timeout:g} seconds") from None


def check_media_type(scope: Scope, allowed: Sequence[str]) -> None:
    """Refuse a body of another type than the allowed ones, of which the first is the usual one."""
    kind = header(scope, b"content-type").decode("latin-1").partition(";")[0].strip().lower()
    if kind and kind not in allowed:
        raise Failure("media_type", f"expected a body of {allowed[0]}, got {kind:.80}")


def client_of(scope: Scope) -> str:
    """Whose turn in the queue a request uses: that of its key, else of its address."""
    key: str | None = scope.get("bertkit.key")
    address = scope.get("client")
    return key if key is not None else address[0] if address else ""


def timeout_of(scope: Scope) -> float | None:
    """Seconds, of ``X-Request-Timeout``: a number of seconds, or with ``ms`` of milliseconds."""
    return _seconds_of(scope, "X-Request-Timeout")


def wait_of(scope: Scope) -> float | None:
    """Seconds that a request waits for room where the queue is full, of ``X-Queue-Wait``, written as the other."""
    return _seconds_of(scope, "X-Queue-Wait")


def _seconds_of(scope: Scope, name: str) -> float | None:
    said = header(scope, name.lower().encode())
    if not said:
        return None
    found = _SECONDS.fullmatch(said.strip())
    seconds = 0.0 if found is None else float(found[1]) / (1000 if found[2] == b"ms" else 1)
    if not 0 < seconds <= 86_400:
        got = repr(said.decode("latin-1"))
        raise Failure("invalid", f"{name} must be seconds, above 0 and at most 86,400, got {got:.80}")
    return seconds


async def parsed(found: Choices, raw: bytes) -> tuple[Dialect, Route, Body]:
    """The bytes of a body as the route reads them that they are for.

    Raises:
        Failure: no JSON, a wrong field, or fields of two routes.
    """
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
    try:
        if len(raw) < _LARGE:
            return dialect, route, validated(route, values)
        return dialect, route, await asyncio.to_thread(validated, route, values)
    except Failure as failure:
        failure.dialect = dialect
        raise


def validated(route: Route, values: Any) -> Body:
    """Parsed JSON as the body that a route reads.

    Raises:
        Failure: a wrong field.
    """
    assert route.body is not None
    if not isinstance(values, dict):
        raise Failure("invalid", f"the body must be a JSON object, got {_KINDS[type(values)]}")
    try:
        return route.body.model_validate(values)
    except ValidationError as error:
        place = error.errors(include_url=False, include_input=False)[0]["loc"]
        said = explain(_findings(error, values, route.body.model_fields))
        raise Failure("invalid", said, param=str(place[0]) if place else None) from None


def _findings(error: ValidationError, body: dict[str, Any], fields: Collection[str]) -> list[Finding]:
    """What pydantic found in a body that may have these fields, as bertkit says it: all of one place together."""
    found: dict[tuple[Any, ...], Finding] = {}
    for each in error.errors(include_url=False):
        kind, place = each["type"], _place(each["loc"], body)
        if kind == "missing":
            place = (*place, each["loc"][-1])
        own = Finding(
            place,
            MISSING if kind == "missing" else each["input"],
            str(each["ctx"]["error"])
            if kind == "value_error"
            else _EXPECTED.get(kind, each["msg"].lower().replace(" after validation", "")),
            whole=kind == "value_error",
            known=fields if kind == "extra_forbidden" else None,
        )
        before = found.setdefault(place, own)
        words = own.expected.removeprefix("input should be ")
        if words not in before.expected:
            found[place] = before._replace(expected=f"{before.expected} or {words}")
    return list(found.values())


def _place(parts: Sequence[int | str], body: Any) -> tuple[int | str, ...]:
    """A place in a body, without the names of types that pydantic tried there."""
    place: list[int | str] = []
    for part in parts:
        if part in body if isinstance(body, dict) else isinstance(body, list) and isinstance(part, int):
            body = body[part]
            place.append(part)
    return tuple(place)


def refused(dialect: Dialect, failure: Failure, scope: Scope, settings: ServeSettings) -> Reply:
    """What a client gets in the place of an answer, which is counted; of a fault of ours the log has more."""
    if (count := scope.get(REJECTED)) is not None:
        count(failure.cause)
    if failure.kind == "fault":
        error = failure.__cause__ or failure
        log.fault(settings, f"a fault at {scope['method']} {scope['path']}", error, id=scope.get(ID))
    return (failure.dialect or dialect).refusal(failure)


async def send_reply(reply: Reply, send: Send) -> None:
    """Send a whole reply."""
    headers = [
        (b"content-type", reply.media_type.encode()),
        (b"content-length", b"%d" % len(reply.body)),
        *((name.encode(), value.encode()) for name, value in reply.headers.items()),
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
