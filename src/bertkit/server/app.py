"""The server, assembled: service, dialects, guards and operations, as one ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import cache
from typing import TYPE_CHECKING

from bertkit.server.dialects import bertkit
from bertkit.server.dialects.table import routes
from bertkit.server.http.adapter import Adapter
from bertkit.server.http.exchange import App, Receive, Scope, Send
from bertkit.server.http.guards import Guarded
from bertkit.server.keys import KeyLimits, read_keys
from bertkit.server.openapi import describe
from bertkit.server.operations.dialect import Operations
from bertkit.server.operations.metrics import EVERY, Metrics
from bertkit.server.playground.pages import playground
from bertkit.server.service import Service
from bertkit.server.settings import ServeSettings
from bertkit.server.tracing import tracer_for

if TYPE_CHECKING:
    from bertkit.server.mcp import McpOverHttp

#: Seconds between two looks for models that nobody asks.
_LOOK_FOR_IDLE = 5.0


class ServerApp:
    """See the module. ``service`` is there before the application starts; models are loaded when it does."""

    def __init__(self, settings: ServeSettings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self._tracer = tracer_for(settings.otlp_endpoint)
        keys = read_keys(settings)
        limits = KeyLimits(keys) if keys else None
        self._loop: asyncio.AbstractEventLoop | None = None
        trace = None if self._tracer is None else self._tracer.batch
        self.service = Service(settings, self.metrics, trace, limits)
        self.metrics.watch(self.service.models)
        table = routes()
        routing = Adapter(self.service, table, bertkit.DIALECT)
        adapter: App = routing
        self._mcp: McpOverHttp | None = None
        if settings.mcp:
            from bertkit.server.mcp import McpOverHttp

            adapter = self._mcp = McpOverHttp(self.service, adapter)
        description = cache(lambda: describe(table, keys=bool(keys), mcp=settings.mcp))
        pages = playground() if settings.playground else {}
        self.operations = Operations(adapter, self.service, self.metrics, description, pages)
        self._guarded = Guarded(
            self.operations,
            settings,
            routing.dialect_of,
            self.metrics.request,
            self._tracer,
            keys=keys,
            limits=limits,
            rejected=self.metrics.rejected,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            if scope["method"] == "HEAD":  # a GET, of whose answer uvicorn leaves the body out
                scope = {**scope, "method": "GET"}
            await self._guarded(scope, receive, send)
        else:  # no WebSockets
            await send({"type": "websocket.close", "code": 1003})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with self.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def drain(self) -> None:
        """Called by any thread when the server is to stop: it is not ready any more, and bulk requests end in time."""
        self.operations.draining = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, self.settings.grace / 2, self.service.ending.set)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the models; at the end finish what was taken, and stop."""
        self._loop = asyncio.get_running_loop()
        if self._tracer is not None:
            self._tracer.start()
        self.service.models.begin()
        background = [asyncio.ensure_future(each()) for each in (self._unload_idle, self._tell_metrics)]
        try:
            async with contextlib.nullcontext() if self._mcp is None else self._mcp.running():
                yield
        finally:
            for task in background:
                task.cancel()
            self.operations.draining = True
            await asyncio.to_thread(self.service.models.stop, self.settings.grace)
            self.metrics.tell()
            if self._tracer is not None:
                await asyncio.to_thread(self._tracer.stop)

    async def _unload_idle(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_FOR_IDLE)
            await asyncio.to_thread(self.service.models.unload_idle)

    async def _tell_metrics(self) -> None:
        while True:
            self.metrics.tell()
            await asyncio.sleep(EVERY)
