"""What stands before all routes: Host and Origin, keys, ids of requests, and how many there may be at once."""

from __future__ import annotations

import hmac
import ipaddress
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from bertkit.server import log
from bertkit.server.dialects.route import Dialect
from bertkit.server.failures import Cause, Failure
from bertkit.server.http.exchange import (
    ID,
    REJECTED,
    TEXTS,
    App,
    Message,
    Receive,
    Scope,
    Send,
    client_of,
    header,
    refused,
    send_reply,
)
from bertkit.server.keys import ApiKey, KeyLimits, client_of_key
from bertkit.server.log import Level
from bertkit.server.playground.pages import PATHS
from bertkit.server.settings import ServeSettings
from bertkit.server.tracing import CURRENT, Tracer

#: What may be read without a key: what those who watch the server ask, and the playground, which asks for the key.
OPEN_PATHS = frozenset({"/health", "/ready", "/ping", "/metrics", "/"})
#: Names of this machine, by which browsers of other pages cannot reach it.
LOCAL = ("localhost", "127.0.0.1", "[::1]")
_MAX_ID, _MAX_PATH = 128, 500


class Guarded:
    """An application behind the guards.

    dialect_of: the dialect of a path, in which a request to it is refused.
    keys: those that clients may send; none: they need none. limits: of the keys.
    rejected: counts refusals.
    """

    def __init__(
        self,
        app: App,
        settings: ServeSettings,
        dialect_of: Callable[[str, str], Dialect],
        count: Callable[[str, int, float], None],
        tracer: Tracer | None = None,
        *,
        keys: Sequence[ApiKey] = (),
        limits: KeyLimits | None = None,
        rejected: Callable[[Cause], None] = lambda cause: None,
    ) -> None:
        self._tracer, self._limits, self._rejected = tracer, limits, rejected
        self._app, self._settings, self._dialect_of = app, settings, dialect_of
        self._count = count
        self._keys = [each.key for each in keys]
        self._admin = None if settings.admin_key is None else settings.admin_key.encode()
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self._hosts = frozenset(map(str.lower, (*LOCAL, host, *settings.allowed_hosts)))
        self._origins = frozenset(settings.allowed_origins)
        self._on_all_addresses = not settings.host or _is_address(host, unspecified=True)
        if self._on_all_addresses:
            own = socket.gethostname().lower()
            self._hosts |= {own, own.partition(".")[0]}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, status = time.perf_counter(), 0
        scope[REJECTED] = self._rejected
        number = scope[ID] = _id_of(header(scope, b"x-request-id"))
        origin = header(scope, b"origin").decode("latin-1")
        span = self._begin_span(scope)
        trace = header(scope, b"traceparent") if span is None or self._tracer is None else self._tracer.parent(span)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"], (b"x-request-id", number.encode())]
                if trace:
                    headers.append((b"traceparent", trace))
                if origin in self._origins:
                    headers += [(b"access-control-allow-origin", origin.encode()), (b"vary", b"Origin")]
                message = {**message, "headers": headers}
            await send(message)

        try:
            self._check_host(scope, origin)
            if scope["method"] == "OPTIONS" and origin in self._origins:
                await _send_preflight(send_with_id)
            else:
                self._check_key(scope)
                await self._app(scope, receive, send_with_id)
        except Failure as failure:
            reply = refused(self._dialect_of(scope["method"], scope["path"]), failure, scope, self._settings)
            await send_reply(reply, send_with_id)
        finally:
            seconds = time.perf_counter() - begun
            self._count(scope["path"], status, seconds)
            if span is not None and self._tracer is not None:
                self._tracer.end(span, scope["method"], scope["path"], status)
            if self._settings.log != "none":
                self._log(scope, status, seconds, number)

    def _begin_span(self, scope: Scope) -> Any:
        """The span of a request, which what it asks of the models finds; None for what watches the server."""
        CURRENT.set(None)
        if self._tracer is None or (scope["method"] == "GET" and scope["path"] in OPEN_PATHS):
            return None
        headers = {name: header(scope, name.encode()).decode("latin-1") for name in ("traceparent", "tracestate")}
        span = self._tracer.begin(scope["method"], scope["path"], headers)
        CURRENT.set(span)
        return span

    def _check_host(self, scope: Scope, origin: str) -> None:
        """Refuse pages of other sites, also those whose name was made to point to this machine (DNS rebinding)."""
        host = header(scope, b"host").decode("latin-1").lower()
        name = _without_port(host)
        if name not in self._hosts and not (self._on_all_addresses and _is_address(name)):
            advice = (
                f"allow it with --allowed-hosts {name} or BERTKIT_ALLOWED_HOSTS"
                if name
                else "send the name of the server"
            )
            raise Failure("forbidden", f"the Host {host!r:.200} is not allowed here: {advice:.300}")
        if origin and origin not in self._origins and origin.partition("://")[2] != host:
            raise Failure(
                "forbidden", f"pages of {origin!r:.200} are not allowed here; allow them with --allowed-origins"
            )

    def _check_key(self, scope: Scope) -> None:
        path = scope["path"]
        admin = path.startswith("/admin/")
        is_open = scope["method"] in ("GET", "HEAD") and (path in OPEN_PATHS or path in PATHS)
        if not admin and (not self._keys or is_open):
            return
        given = header(scope, b"authorization")
        given = given[7:].strip() if given[:7].lower() == b"bearer " else given or header(scope, b"x-api-key")
        known = ([] if self._admin is None else [self._admin]) if admin else self._keys
        if admin and not known:
            raise Failure("no_route", "there is no /admin without --admin-key")
        matches = [hmac.compare_digest(given, key) for key in known]  # all of them, so that time says nothing
        if not any(matches):
            raise Failure("unauthorized", "a key is needed: Authorization: Bearer KEY")
        scope["bertkit.key"] = client = client_of_key(matches.index(True))
        if self._limits is not None and not admin and scope["method"] == "POST":
            self._limits.take_request(client)

    def _log(self, scope: Scope, status: int, seconds: float, number: str) -> None:
        ms, client = round(seconds * 1000, 2), client_of(scope)
        method, path = scope["method"], scope["path"]
        if self._settings.log == "json":
            facts = {"client": client, "method": method, "path": path, "status": status, "ms": ms}
            if self._settings.log_texts:
                facts["texts"] = scope.get(TEXTS)
            level: Level = "info" if status < 400 else "warning" if status < 500 else "error"
            log.write(self._settings, level, f"{method} {path} {status}", id=number, **facts)
        elif status >= 400 or self._settings.log_requests:
            path = path.encode("unicode_escape").decode()[:_MAX_PATH]  # no forged lines
            log.put(f"{log.now()} {client} {method} {path} {status} {ms} ms [{number}]")


def _without_port(host: str) -> str:
    """The name in a Host header; an address of IPv6 keeps its brackets."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _is_address(host: str, *, unspecified: bool = False) -> bool:
    """Whether a Host is an address, which no DNS says the meaning of; ``unspecified``: that of all addresses."""
    try:
        found = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return found.is_unspecified or not unspecified


def _id_of(given: bytes) -> str:
    text = given.decode("latin-1")
    return text if 0 < len(text) <= _MAX_ID and text.isascii() and text.isprintable() else uuid4().hex


async def _send_preflight(send: Send) -> None:
    headers: Mapping[bytes, bytes] = {
        b"access-control-allow-methods": b"GET, POST",
        b"access-control-allow-headers": b"authorization, content-type, x-api-key, x-queue-wait, x-request-id, "
        b"x-request-timeout",
        b"access-control-max-age": b"600",
    }
    await send({"type": "http.response.start", "status": 204, "headers": list(headers.items())})
    await send({"type": "http.response.body", "body": b""})
