"""uvicorn's connections, with what it lacks: an end to waiting for a request, a limit of heads, a gentle goodbye."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

#: Most bytes of the URL and headers of a request, and most headers. uvicorn has limits only in its slower parser.
MAX_HEAD_BYTES, MAX_HEADERS = 65_536, 100
#: Seconds in which a connection without a request may still send one when the server stops: it may be on its way.
LINGER = 0.3


class Connection(HttpToolsProtocol):
    """See the module. ``head_timeout``: seconds that a client may take to send the head of a request."""

    head_timeout: float = 20.0

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._head: asyncio.TimerHandle | None = None
        self._leaving = False
        self._head_bytes = self._num_headers = 0
        #: Bytes since the parser last handed on a whole head or a part of a body: it keeps a header until it has ended.
        self._kept = 0
        self._handed_on = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # As between two requests: ended by the first byte.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._handed_on = False
        super().data_received(data)
        self._kept = 0 if self._handed_on else self._kept + len(data)
        if self._kept > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("")
        if self._head is None and self._is_idle and not self.transport.is_closing():
            self._head = self.loop.call_later(self.head_timeout, self.transport.close)

    def on_message_begin(self) -> None:
        self._head_bytes = self._num_headers = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Also called for what follows a body in chunks."""
        self._num_headers += 1
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def _count(self, num_bytes: int) -> None:
        self._head_bytes += num_bytes
        if self._is_head_too_large:
            raise ValueError  # which the parser makes an error of its own, and uvicorn calls send_400_response

    @property
    def _is_head_too_large(self) -> bool:
        return max(self._head_bytes, self._kept) > MAX_HEAD_BYTES or self._num_headers > MAX_HEADERS

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn for what it cannot read; 431 for a head that is too large."""
        if not self._is_idle:  # the client is reading another answer
            self.transport.close()
        elif self._is_head_too_large:
            text = f"a head may have {MAX_HEAD_BYTES:,} bytes and {MAX_HEADERS} headers"
            length = b"content-length: %d" % len(text)
            lines = (b"content-type: text/plain; charset=utf-8", length, b"connection: close", b"", text.encode())
            self.transport.write(STATUS_LINE[431] + b"\r\n".join(lines))
            self.transport.close()
        else:
            super().send_400_response(msg)

    def on_body(self, body: bytes) -> None:
        self._handed_on = True
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._handed_on = True
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
