"""uvicorn's connections, with two things that it lacks: an end to waiting for a request, and a gentle goodbye."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Seconds in which a connection without a request may still send one when the server stops: it may be on its way.
LINGER = 0.3


class Connection(HttpToolsProtocol):
    """See the module. ``head_timeout``: seconds that a client may take to send the head of a request."""

    head_timeout: float = 20.0

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._head: asyncio.TimerHandle | None = None
        self._leaving = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # As between two requests: ended by the first byte.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head is None and self._is_idle and not self.transport.is_closing():
            self._head = self.loop.call_later(self.head_timeout, self.transport.close)

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()
        if self._leaving:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """Called by uvicorn when the server stops."""
        if self._is_idle:
            self._leaving = True
            self.loop.call_later(LINGER, self._close_if_idle)
        else:
            super().shutdown()

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _close_if_idle(self) -> None:
        if self._is_idle:
            self.transport.close()

    def _stop_waiting(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
