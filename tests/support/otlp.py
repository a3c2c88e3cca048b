"""A receiver of OTLP over HTTP: it stands in for an OpenTelemetry collector."""

import contextlib
import gzip
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

from testing.server import wait_until

ARRIVES_WITHIN_S = 20


class Span:
    """A received span."""

    def __init__(self, received: Any, resource: Mapping[str, Any]) -> None:
        self.name: str = received.name
        self.trace_id: str = received.trace_id.hex()
        self.span_id: str = received.span_id.hex()
        self.parent_id: str = received.parent_span_id.hex()
        self.begin_ns: int = received.start_time_unix_nano
        self.end_ns: int = received.end_time_unix_nano
        self.attributes = _values(received.attributes)
        self.links = [
            (link.trace_id.hex(), link.span_id.hex()) for link in received.links
        ]
        self.error: str | None = None
        if received.status.code == received.status.STATUS_CODE_ERROR:
            self.error = received.status.message
        self.resource = resource

    def __repr__(self) -> str:
        return f"{self.name} {self.attributes}"


class Collector:
    """What has been received."""

    def __init__(self, port: int) -> None:
        self.environ = {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            # Milliseconds between exports.
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }
        self.spans: list[Span] = []

    def add(self, body: bytes) -> None:
        """Add the spans of a request's body."""
        for of_process in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _values(of_process.resource.attributes)
            for scope in of_process.scope_spans:
                self.spans += [Span(each, resource) for each in scope.spans]

    def wait_for(self, name: str, count: int = 1) -> list[Span]:
        """Wait for spans whose name begins so, and return them by their begin."""

        def found() -> list[Span]:
            return [each for each in self.spans if each.name.startswith(name)]

        wait_until(
            lambda: len(found()) >= count, ARRIVES_WITHIN_S, lambda: repr(self.spans)
        )
        return sorted(found(), key=lambda each: each.begin_ns)

    def children_of(self, parent: Span) -> dict[str, Span]:
        """Return the received children of a span by their names."""
        return {
            each.name: each
            for each in self.spans
            if (each.trace_id, each.parent_id) == (parent.trace_id, parent.span_id)
        }


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """Receive spans on a free port until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            assert self.headers["Content-Type"] == "application/x-protobuf"
            collector.add(body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _values(attributes: Any) -> dict[str, Any]:
    """Return attributes as Python's values."""
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value"))
        for each in attributes
    }
