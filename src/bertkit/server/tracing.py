"""Spans of requests for OpenTelemetry: a request, its wait, its computation, and the batch that it was computed in.

Off unless asked for. Spans are handed over in the background, and dropped where nobody takes them: no answer waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from bertkit import __version__
from bertkit.errors import MissingExtraError
from bertkit.system.console import say

#: The span of the request that a task answers; None: none is recorded.
CURRENT: ContextVar[Any] = ContextVar("bertkit_request_span", default=None)
#: Where OpenTelemetry looks for the address of a collector.
_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
#: Seconds for what is left when the server stops.
_LAST = 2.0
_NEEDED = "spans for OpenTelemetry need 'bertkit[otel]', which is not installed. Run: pip install 'bertkit[otel]'"


def tracer_for(endpoint: str | None, environment: Mapping[str, str] = os.environ) -> Tracer | None:
    """The spans for a collector, given or named in the environment; None: nobody asked for them.

    Raises:
        MissingExtraError: a collector is given, and OpenTelemetry is not installed.
    """
    asked = endpoint is not None or any(environment.get(name) for name in _VARIABLES)
    off = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if not asked or off or environment.get("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return None
    try:
        return Tracer(endpoint)
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("opentelemetry"):
            raise
        if endpoint is not None:
            raise MissingExtraError(_NEEDED) from None
    say(f"no spans are recorded: {_NEEDED}")  # the environment may be meant for others
    return None


class Tracer:
    """See the module. ``endpoint``: as ``http://HOST:4318``; None: as OpenTelemetry finds it."""

    def __init__(self, endpoint: str | None) -> None:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._api, self._contexts = trace, TraceContextTextMapPropagator()
        named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        about = {"service.version": __version__} | ({} if named else {"service.name": "bertkit"})
        self._provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        self._processor = lambda: BatchSpanProcessor(
            OTLPSpanExporter() if endpoint is None else OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces")
        )
        self._tracer = self._provider.get_tracer("bertkit.server", __version__)

    def start(self) -> None:
        """Start handing spans over; after a fork, because that is a thread."""
        self._provider.add_span_processor(self._processor())

    def stop(self) -> None:
        """Hand over what is left, for a short while."""
        thread = threading.Thread(target=self._provider.shutdown, name="bertkit-spans", daemon=True)
        thread.start()
        thread.join(_LAST)

    def begin(self, method: str, path: str, headers: Mapping[str, str]) -> Any:
        """The span of a request, below that which its headers name."""
        return self._tracer.start_span(
            method,
            context=self._contexts.extract(headers),
            kind=self._api.SpanKind.SERVER,
            attributes={"http.request.method": method, "url.path": path},
        )

    def parent(self, span: Any) -> bytes:
        """What a request's answer says of its span: the header ``traceparent``."""
        said: dict[str, str] = {}
        self._contexts.inject(said, self._api.set_span_in_context(span))
        return said["traceparent"].encode()

    def end(self, span: Any, method: str, path: str, status: int) -> None:
        """End the span of a request; ``status`` 0: it was not answered, because its client left."""
        if status and status != 404:  # a name that is one of few
            span.update_name(f"{method} {path}")
            span.set_attribute("http.route", path)
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(self._api.StatusCode.ERROR)
        span.end()

    def batch(self, name: str, waited: Sequence[tuple[Any, float]], begun: float, ended: float, tokens: int) -> None:
        """A batch that was computed, on the clock of ``time.monotonic``.

        waited: the span of each of its requests, and when it arrived; with None for those that are not recorded.
        """
        recorded = [(span, arrived) for span, arrived in waited if span is not None and span.is_recording()]
        if not recorded:
            return
        now, zero = time.monotonic(), time.time_ns()

        def at(moment: float) -> int:
            return zero - round((now - moment) * 1e9)

        of_batch = self._tracer.start_span(
            f"batch {name}",
            context=self._api.set_span_in_context(self._api.INVALID_SPAN),
            links=[self._api.Link(span.get_span_context()) for span, _ in recorded],
            start_time=at(begun),
            attributes={"bertkit.model": name, "bertkit.requests": len(waited), "bertkit.tokens": tokens},
        )
        link = [self._api.Link(of_batch.get_span_context())]
        of_batch.end(at(ended))
        for span, arrived in recorded:
            below = self._api.set_span_in_context(span)
            self._tracer.start_span("queue", context=below, start_time=at(arrived)).end(at(begun))
            self._tracer.start_span("compute", context=below, start_time=at(begun), links=link).end(at(ended))
