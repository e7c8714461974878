"""From ASGI requests to the routes of the dialects and back: bodies with limits, clients that leave, failures."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace

from bertkit.server.batcher import failure_of
from bertkit.server.calls import Answer, Call, Look, ModelFacts
from bertkit.server.dialects.route import JSON, Asked, Body, Dialect, Planned, Reply, Route
from bertkit.server.failures import Failure
from bertkit.server.http.bulk import answer_lines
from bertkit.server.http.exchange import (
    TEXTS,
    Choices,
    ClientLeft,
    Receive,
    Scope,
    Send,
    body_of,
    check_media_type,
    client_of,
    parsed,
    refused,
    send_reply,
    timeout_of,
    wait_of,
)
from bertkit.server.service import Service

_MEDIA_TYPES = (JSON, "text/json", "application/x-www-form-urlencoded")


class Adapter:
    """The routes as an ASGI application.

    routes: by method and path.
    fallback: the dialect in which a path that does not exist is refused.
    """

    def __init__(self, service: Service, routes: Mapping[tuple[str, str], Choices], fallback: Dialect) -> None:
        self._service, self._fallback = service, fallback
        self._exact = {place: found for place, found in routes.items() if "{model}" not in place[1]}
        self._patterns = [
            (method, re.compile(re.escape(path).replace(r"\{model\}", "(.+)")), found)
            for (method, path), found in sorted(routes.items(), key=lambda item: -len(item[0][1]))
            if "{model}" in path
        ]
        self._paths = {path: found[0][0] for (_, path), found in self._exact.items()}
        self._settings = service.settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found, model = self._routes_of(scope["method"], scope["path"])
        dialect = found[0][0] if found else self._fallback
        try:
            if not found:
                raise self._no_route(scope)
            body = None
            route = found[0][1]
            if route.lines:
                await answer_lines(self._service, dialect, route, scope, receive, send)
                return
            if any(route.body for _, route, _ in found):
                dialect, route, body = await self._read(found, scope, receive)
            reply = await self._reply(dialect, route, Asked(body, model), scope, receive)
        except ClientLeft:
            return
        except Failure as failure:
            reply = refused(dialect, failure, scope, self._settings)
        except Exception as error:  # a fault of ours, of which the client learns no more than that
            reply = refused(dialect, failure_of(error), scope, self._settings)
        await send_reply(reply, send)

    def _routes_of(self, method: str, path: str) -> tuple[Choices, str | None]:
        found = self._exact.get((method, path))
        if found is not None:
            return found, None
        for its, pattern, choices in self._patterns:
            if its == method and (match := pattern.fullmatch(path)):
                return choices, match[1]
        return (), None

    def dialect_of(self, method: str, path: str) -> Dialect:
        """In whose words a request is refused before its body is read."""
        found, _ = self._routes_of(method, path)
        return found[0][0] if found else self._dialect_of_path(path) or self._fallback

    def _dialect_of_path(self, path: str) -> Dialect | None:
        """Of a path, whatever the method; None: there is no such path."""
        known = (choices[0][0] for _, pattern, choices in self._patterns if pattern.fullmatch(path))
        return self._paths.get(path) or next(known, None)

    def _no_route(self, scope: Scope) -> Failure:
        path = scope["path"]
        if (dialect := self._dialect_of_path(path)) is not None:
            failure = Failure("method", f"{path} does not take {scope['method']}")
            failure.dialect = dialect
            return failure
        return Failure("no_route", f"there is no {scope['method']} {path:.200}; /openapi.json lists what there is")

    async def _read(self, found: Choices, scope: Scope, receive: Receive) -> tuple[Dialect, Route, Body]:
        by_field = any(route.body and "wait" in route.body.model_fields for _, route, _ in found)
        waits = wait_of(scope) is not None
        if not waits and not by_field:
            self._service.check_room()  # before work is put into a request that cannot be taken
        check_media_type(scope, _MEDIA_TYPES)
        raw = await body_of(scope, receive, self._settings)
        if not waits and by_field and b'"wait"' not in raw:
            self._service.check_room()
        return await parsed(found, raw)

    async def _reply(self, dialect: Dialect, route: Route, asked: Asked, scope: Scope, receive: Receive) -> Reply:
        if route.needs_facts:
            name = asked.model or getattr(asked.body, "model", None)
            asked = replace(asked, facts=self._known_facts(name))
        planned = route.plan(asked)
        call = planned.call
        if isinstance(call, Look):
            reply: Reply = planned.render(self._service.look(call))
            return reply
        scope[TEXTS] = call.items
        if (seconds := timeout_of(scope)) is not None:
            call = replace(call, timeout=seconds if call.timeout is None else min(seconds, call.timeout))
        if (seconds := wait_of(scope)) is not None:
            call = replace(call, wait=seconds if call.wait is None else min(seconds, call.wait))
        return await self._computed(dialect, call, planned, scope, receive)

    def _known_facts(self, name: str | None) -> ModelFacts:
        """Of a model, once its tasks are known; a Failure says why they are not, and its loading has begun."""
        facts = self._service.look(Look(model=name)).models[0]
        if facts.tasks:
            return facts
        self._service.models.batcher_for(Call(task="tokenize", items=(), model=facts.name))
        return self._service.look(Look(model=name)).models[0]

    async def _computed(self, dialect: Dialect, call: Call, planned: Planned, scope: Scope, receive: Receive) -> Reply:
        """The reply to a call, unless its client leaves before: then its work is dropped."""

        def render(answer: Answer) -> Reply:
            reply: Reply = planned.render(answer)
            cut = sum(answer.truncated)
            more = dict(dialect.headers(answer))
            if cut:
                more["x-truncated"] = str(cut)
            return replace(reply, headers={**reply.headers, **more}) if more else reply

        task, waiting, left = asyncio.current_task(), True, False
        assert task is not None

        def leave(done: asyncio.Task[None]) -> None:
            nonlocal left
            if waiting and not done.cancelled():
                left = True
                task.cancel()

        leaving = asyncio.ensure_future(_disconnected(receive))
        leaving.add_done_callback(leave)
        try:
            return await self._service.answer(call, render, client_of(scope))
        except Failure as failure:
            failure.task = call.task
            raise
        except asyncio.CancelledError:
            if not left and not self._service.ending.is_set():
                raise
            task.uncancel()
            if left:
                raise ClientLeft from None
            said = "the server was shut down before this request was computed"
            raise Failure("not_ready", said, retry_after=1.0) from None
        finally:
            waiting = False
            leaving.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
