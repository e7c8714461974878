"""Spans, as a collector receives them over HTTP, decoded with the classes of OpenTelemetry's protocol."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import MissingExtraError
from bertkit.server.tracing import tracer_for
from server_helpers import ask, body_of, save_models, serving

FILM = {"input": "a good film"}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """A server that keeps the spans that it is sent; its address and the spans."""
    service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    found: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            for resource in service.ExportTraceServiceRequest.FromString(body).resource_spans:
                found.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", found
    finally:
        server.shutdown()


def named(spans: list[Any], name: str) -> list[Any]:
    return [span for span in spans if span.name == name]


def test_a_request_its_wait_and_its_batch(tmp_path: Path) -> None:
    with collector() as (place, spans):
        with serving(*save_models(tmp_path, ("vectors",)), otlp_endpoint=place, max_items=2) as (_, address):
            trace = f"00-{TRACE}-{PARENT}-01"
            reply = ask(address, "/v1/embed", FILM, traceparent=trace)
            not_sampled = ask(address, "/v1/embed", FILM, traceparent=f"00-{TRACE}-{PARENT}-00")
            ask(address, "/v1/embed", {"input": ["a"] * 3})
            ask(address, "/health")
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda _: ask(address, "/v1/embed", FILM), range(48)))
            lines = body_of(*[FILM] * 5)
            assert ask(address, "/v1/bulk/embed", lines, content_type="application/x-ndjson").status == 200
        assert (reply.status, not_sampled.status) == (200, 200)
        requests = named(spans, "POST /v1/embed")
        assert len(requests) == 50  # without the one that its client's trace leaves out
        (own,) = [span for span in requests if span.trace_id.hex() == TRACE]
        assert (own.parent_span_id.hex(), own.kind) == (PARENT, 2)
        assert reply.headers["traceparent"] == f"00-{TRACE}-{own.span_id.hex()}-01"
        values = {one.key: one.value for one in own.attributes}
        assert values["http.response.status_code"].int_value == 200
        phases = [span for span in spans if span.parent_span_id == own.span_id]
        assert {span.name for span in phases} == {"queue", "compute"}
        assert all(span.trace_id == own.trace_id for span in phases)
        queue, compute = sorted(phases, key=lambda span: span.name, reverse=True)
        assert own.start_time_unix_nano <= queue.start_time_unix_nano <= queue.end_time_unix_nano
        assert queue.end_time_unix_nano == compute.start_time_unix_nano <= compute.end_time_unix_nano
        assert compute.end_time_unix_nano <= own.end_time_unix_nano
        assert abs(own.start_time_unix_nano / 1e9 - time.time()) < 60
        batches = {span.span_id: span for span in named(spans, "batch vectors")}
        answered = {span.span_id for span in requests} | {span.span_id for span in named(spans, "POST /v1/bulk/embed")}
        linked = [link.span_id for batch in batches.values() for link in batch.links]
        assert len(linked) == 49 + 5, "one that was refused was in no batch"
        assert set(linked) <= answered
        assert len(batches) < len(linked), "some were computed together"
        assert {link.span_id for span in named(spans, "compute") for link in span.links} == set(batches)
        assert not any("health" in span.name for span in spans)


@pytest.mark.campaign
def test_a_collector_that_is_not_there_delays_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.sdk")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    with serving(*save_models(tmp_path, ("vectors",))) as (_, address):
        for _ in range(20):
            assert ask(address, "/v1/embed", FILM).status == 200
        begun = time.monotonic()
    assert time.monotonic() - begun < 10


def test_off_unless_asked_for_and_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tracer_for(None, {}) is None
    there = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    assert tracer_for(None, there | {"OTEL_SDK_DISABLED": "true"}) is None
    assert tracer_for(None, there | {"OTEL_TRACES_EXPORTER": "none"}) is None
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert tracer_for(None, there) is None, "the environment may be meant for others"
    with pytest.raises(MissingExtraError, match=r"bertkit\[otel\]"):
        tracer_for("http://127.0.0.1:9", {})
    code = "import sys, bertkit.server.app; sys.exit('opentelemetry.sdk' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
