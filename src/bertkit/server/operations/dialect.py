"""Routes for those who run the server: health, readiness, metrics, OpenAPI, reloading."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from bertkit.server.dialects.route import Reply, dumps
from bertkit.server.failures import Failure
from bertkit.server.http.exchange import App, Receive, Scope, Send, send_reply
from bertkit.server.operations.health import Health
from bertkit.server.operations.metrics import Metrics
from bertkit.server.service import Service

#: Share of the queue, of its requests or its tokens, from which a server is too full for more.
FULL = 0.95
Answering = Callable[[], Awaitable[Reply]]


class Operations:
    """The routes as an application; what they do not know goes on to ``app``. ``pages``: files by their paths."""

    def __init__(
        self,
        app: App,
        service: Service,
        metrics: Metrics,
        openapi: Callable[[], Mapping[str, Any]],
        pages: Mapping[str, Reply] = MappingProxyType({}),
    ) -> None:
        self._app, self._service, self._metrics = app, service, metrics
        self._openapi, self._state = openapi, Health(service)
        #: Set when the server is told to stop: it finishes what it has, and takes no new connections.
        self.draining = False
        self._routes: Mapping[tuple[str, str], Answering] = {
            ("GET", "/health"): self._health,
            ("GET", "/ready"): self._ready,
            ("GET", "/metrics"): self._page,
            ("GET", "/openapi.json"): self._description,
            ("POST", "/admin/reload"): self._reload,
            ("GET", "/admin/models"): self._models,
            **{("GET", path): partial(_given, page) for path, page in pages.items()},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get((scope["method"], scope["path"]))
        if route is None:
            await self._app(scope, receive, send)
            return
        reply = await route()
        await send_reply(reply, send)

    async def _health(self) -> Reply:
        """503 if a model does not compute; 200 also while models are loaded, because restarting would not help."""
        if (fault := await self._state.fault()) is not None:
            return Reply(dumps({"error": fault, "error_type": "Unhealthy"}), 503)
        return Reply(dumps({"status": "ok"}))

    async def _ready(self) -> Reply:
        reason = self._why_not_ready()
        return Reply(dumps({"ready": reason is None, "reason": reason}), 200 if reason is None else 503)

    def _why_not_ready(self) -> str | None:
        models = self._service.models
        if self.draining:
            return "shutting down"
        if not models.settled:
            return "loading models"
        if failed := [facts.name for facts in models.facts() if facts.state == "failed"]:
            return f"models that could not be loaded: {', '.join(failed)}"
        for slot in models.slots.values():
            if slot.batcher is not None and slot.batcher.queue.fullness > FULL:
                return f"the queue of {slot.name} is full"
        return None

    async def _page(self) -> Reply:
        return Reply(self._metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _description(self) -> Reply:
        return Reply(dumps(await asyncio.to_thread(self._openapi)))  # made at the first request, in 65 ms

    async def _models(self) -> Reply:
        """All that is known of the models, also where they lie, which ``/v1/info`` does not tell."""
        return Reply(dumps({"models": self._service.models.facts()}))

    async def _reload(self) -> Reply:
        if self._service.settings.workers > 1:
            raise Failure("invalid", "with --workers, send SIGHUP to the supervisor: it reloads all of them")
        models = self._service.models
        done = {slot.name: await asyncio.to_thread(models.load, slot) for slot in models.in_use()}
        return Reply(dumps({"reloaded": done}), 200 if all(done.values()) else 424)


async def _given(reply: Reply) -> Reply:
    return reply
