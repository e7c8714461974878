"""Run a server in this process until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FrameType
from typing import Any

from bertkit.errors import ResourceError, require
from bertkit.server.app import ServerApp
from bertkit.server.calls import ModelFacts
from bertkit.system.cyclic_garbage import collect_for_a_server, collect_if_due

#: Requests that may stand in the system's line to be accepted.
_BACKLOG = 4096


def listen(host: str, port: int, *, joined: bool = False) -> socket.socket:
    """A socket that listens; ``joined``: others may listen there, too.

    Raises:
        ResourceError: the address is taken, or not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if joined:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise ResourceError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from None
    made.listen(_BACKLOG)
    return made


def listen_apart(host: str, port: int, number: int) -> list[socket.socket]:
    """Sockets of one address, among which Linux spreads connections; elsewhere one, which its owners share.

    Of workers that share a socket the one that wakes first takes all connections that wait.

    Raises:
        ResourceError: as of :func:`listen`.
    """
    first = listen(host, port)
    if number == 1 or not sys.platform.startswith("linux"):
        return [first]
    port = first.getsockname()[1]
    first.close()  # it has seen that nobody else listens there, which sockets that can be joined do not
    return [listen(host, port, joined=True) for _ in range(number)]


def uvicorn_server(app: ServerApp) -> Any:
    """The server of uvicorn for an application, with all its modules imported."""
    uvicorn = require("uvicorn", extra="serve", needed_for="bertkit serve")
    from bertkit.server.http.protocol import Connection

    settings = app.settings
    config = uvicorn.Config(
        app,
        http=type("Connection", (Connection,), {"head_timeout": settings.body_timeout}),
        log_config=None,
        log_level="error",
        access_log=False,
        lifespan="on",
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=math.ceil(settings.grace),
        backlog=_BACKLOG,
        server_header=False,
    )
    config.load()
    config.get_loop_factory()
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # which would end the process by the signal in the end
    return server


def _stop(app: ServerApp, server: Any, number: int, frame: FrameType | None) -> None:
    app.drain()
    server.handle_exit(number, frame)


def run(app: ServerApp, listening: Sequence[socket.socket], ready: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGTERM or SIGINT: what was taken is finished, new requests are refused.

    ready: called once, when all models are loaded, or could not be.
    """
    server = uvicorn_server(app)
    collect_for_a_server()

    async def serve() -> None:
        background = [asyncio.ensure_future(each) for each in (_tell(app, ready), _collect_when_idle(app))]
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, partial(_stop, app, server))
        if hasattr(signal, "SIGHUP"):
            if app.settings.workers == 1:
                loop.add_signal_handler(signal.SIGHUP, lambda: _reload(app))
            else:  # the supervisor reloads
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            await server.serve(sockets=list(listening))
        finally:
            for task in background:
                task.cancel()

    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(serve())


def _reload(app: ServerApp) -> None:
    models = app.service.models
    for slot in models.in_use():
        threading.Thread(target=models.load, args=(slot,), daemon=True).start()


async def _tell(app: ServerApp, ready: Callable[[], None]) -> None:
    while not app.service.models.settled:
        await asyncio.sleep(0.02)
    ready()


async def _collect_when_idle(app: ServerApp) -> None:
    while True:
        await asyncio.sleep(1.0)
        if app.service.models.settled and not app.service.open_requests:
            collect_if_due()


@contextlib.contextmanager
def in_thread(app: ServerApp) -> Iterator[str]:
    """The server in a thread of this process, with its models loaded; yields its address. For tests and notebooks."""
    listening = listen(app.settings.host, app.settings.port)
    server = uvicorn_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        while not (server.started and app.service.models.settled):
            if not thread.is_alive():
                raise ResourceError("the server did not start")
            thread.join(0.01)
        yield address(listening)
    finally:
        app.drain()
        server.should_exit = True
        thread.join()


def address(listening: socket.socket) -> str:
    """Where a socket listens, for a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


#: A body for each task, for the line of curl that a start prints.
EXAMPLES = {
    "embed": '{"input": "The bank of the river."}',
    "sparse": '{"input": "The bank of the river."}',
    "rerank": '{"query": "river", "documents": ["The bank of the river.", "A loan."]}',
    "classify": '{"input": "A film to remember."}',
    "tag": '{"input": "Ada Lovelace lived in London."}',
    "answer": '{"input": {"question": "Where?", "context": "She lived in London."}}',
    "choose": '{"input": {"context": "She put the kettle on.", "choices": ["It boiled.", "It sang."]}}',
    "fill-mask": '{"input": "The [MASK] of the river."}',
    "next-sentence": '{"input": ["He went to the bank.", "It was closed."]}',
    "generate": '{"input": "A long story."}',
    "analyze": '{"input": "A film to remember."}',
}


def curl(place: str, facts: ModelFacts) -> str:
    """A line that asks a model its own task."""
    task = facts.tasks[0]
    body = EXAMPLES[task][1:-1]
    named = f'{{"model": "{facts.name}", {body}}}'.replace("'", "'\\''")
    return f"curl {place}/v1/{task} -H 'content-type: application/json' -d '{named}'"
