"""The Model Context Protocol: what the models can do as tools of a language model, on stdio or at ``/mcp``.

A tool is one of bertkit's own routes: its arguments are the fields of the route's body, its result is the route's
answer, and what is wrong with a call is a tool error with the same message. There is no tool that embeds: hundreds of
numbers mean nothing to a language model, and ``similarity`` says what it would compute of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from bertkit import __version__
from bertkit.server.batcher import failure_of
from bertkit.server.calls import Call
from bertkit.server.dialects.bertkit import DIALECT
from bertkit.server.dialects.route import Asked, Route
from bertkit.server.failures import Failure
from bertkit.server.http.exchange import (
    REJECTED,
    App,
    ClientLeft,
    Message,
    Receive,
    Scope,
    Send,
    body_of,
    client_of,
    refused,
    validated,
)
from bertkit.server.service import Service

PATH = "/mcp"
#: Tools by the task that a model must do, with what a language model reads of them.
TOOLS: Mapping[str, str] = {
    "classify": "Say which labels of a trained classifier fit texts, with a probability for each label, best first.",
    "zero-shot": "Say which of the labels given in the call fit texts, with scores, best first.",
    "tag": "Find names of people, places and other entities in texts. start and end are character offsets.",
    "redact": "Replace entities in texts with placeholders such as [PER_1]; the same entity gets the same placeholder.",
    "similarity": "Say how close in meaning each of several sentences is to one source sentence; 1 is the closest.",
    "answer": "Answer a question with a passage quoted from the context given in the call, which may be long.",
    "search": "Search a collection of documents by meaning and words; returns the best passages with their sources.",
    "fill-mask": "Guess the words behind the mask token of a text, usually [MASK], with probabilities.",
}
#: Fields of a body that are for programs.
_HIDDEN = frozenset({"timeout", "wait", "priority", "facts", "unit", "aggregation", "function"})
#: Tools change nothing, and know nothing of the world outside.
_HINTS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
#: Seconds between two looks whether the models are loaded.
_PAUSE = 0.05


def mcp_server(service: Service) -> Server[Any]:
    """The tools of a service as a server of the official SDK."""
    paths = {route.path: route for route in DIALECT.routes}
    routes = {name: paths[f"/v1/{name}"] for name in TOOLS}

    def available() -> dict[str, list[str]]:
        """Tools, each with the models that can do it; to search, the indexes."""
        facts = service.models.facts()
        named = {name: [one.name for one in facts if name in one.tasks] for name in routes}
        named["search"] = [index.name for index in service.indexes.facts()]
        return {name: there for name, there in named.items() if there}

    async def list_tools(context: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        end = asyncio.get_running_loop().time() + service.settings.timeout
        while not service.models.settled and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(_PAUSE)
        return ListToolsResult(tools=[_tool(routes[name], name, models) for name, models in available().items()])

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        try:
            if (route := routes.get(params.name)) is None:
                raise Failure("no_route", f"no tool {params.name!r:.80}; there are: {', '.join(available())}")
            planned = route.plan(Asked(validated(route, params.arguments or {})))
            assert isinstance(planned.call, Call)
            client = "mcp" if context.request is None else client_of(context.request.scope)
            reply = await service.answer(planned.call, planned.render, client)
        except Exception as error:
            failure = failure_of(error)
            scope = {"method": "tool", "path": params.name, REJECTED: service.watch.rejected}
            refused(DIALECT, failure, scope, service.settings)
            return CallToolResult(content=[TextContent(text=failure.message)], is_error=True)
        text = reply.body.decode()
        return CallToolResult(content=[TextContent(text=text)], structured_content=json.loads(text))

    return Server(
        "bertkit",
        version=__version__,
        instructions="Tools answered by small BERT models on this machine. Each takes one text or a list of texts.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _tool(route: Route, name: str, there: list[str]) -> Tool:
    """A tool whose ``model``, or ``index``, is one of those that are there."""
    assert route.body is not None
    schema = route.body.model_json_schema()
    for field in _HIDDEN & schema["properties"].keys():
        del schema["properties"][field]
    asked = "index" if name == "search" else "model"
    schema["properties"][asked] = {"enum": there, "description": f"by default {there[0]}"}
    return Tool(name=name, description=TOOLS[name], input_schema=schema, annotations=_HINTS)


async def serve_stdio(service: Service) -> None:
    """Answer the client that started this process, until it closes standard input."""
    server = mcp_server(service)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


class McpOverHttp:
    """Streamable HTTP at :data:`PATH`; what is asked elsewhere goes on to ``app``.

    Without sessions, so that any worker can answer, and without streams: a call is answered by one JSON object.
    """

    def __init__(self, service: Service, app: App) -> None:
        self._service, self._app = service, app
        self._manager: StreamableHTTPSessionManager | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the server answers."""
        most = self._service.settings.max_body_bytes
        server = mcp_server(self._service)
        self._manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=most
        )
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != PATH:
            await self._app(scope, receive, send)
        elif scope["method"] != "POST":
            raise Failure("method", f"{PATH} does not take {scope['method']}: it has no sessions and no streams")
        else:
            assert self._manager is not None
            try:
                body = await body_of(scope, receive, self._service.settings)
            except ClientLeft:
                return
            waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

            async def replayed() -> Message:
                return waiting.pop() if waiting else await receive()

            await self._manager.handle_request(scope, replayed, send)
