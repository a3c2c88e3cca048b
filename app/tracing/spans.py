"""Spans of requests and batches, by OpenTelemetry's SDK.

The SDK reads its own environment variables: endpoint, headers, sampler, service name
and so on. https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app.call import Head
from app.tracing.recorder import Recorder

_SERVICE = "basket"
_W3C = TraceContextTextMapPropagator()
Attributes = Mapping[str, str | int]


@dataclass(frozen=True)
class Stage:
    """A request, a part of it or a batch, between two times on the monotonic clock."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True)
class Outcome:
    """What is known of a request or batch at its end; `error` is "" if it succeeded."""

    attributes: Attributes
    error: str


class RequestSpan:
    """The span of a request that is being answered."""

    def __init__(self, span: trace.Span, epoch_ns: int) -> None:
        """Store a span, and the time at which the monotonic clock began."""
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, trace.set_span_in_context(span))
        self.span = span
        self.epoch_ns = epoch_ns
        self.traceparent = carrier["traceparent"]


class Spans:
    """Makes the spans of one process, which a thread of the SDK exports."""

    def __init__(self) -> None:
        """Make the SDK's tracers; call it after the fork, as that starts a thread.

        Raises:
            ValueError: the SDK refuses one of its variables.
        """
        named = OTELResourceDetector().detect().attributes.get(SERVICE_NAME)
        resource = Resource.create({} if named else {SERVICE_NAME: _SERVICE})
        self._processor = BatchSpanProcessor(OTLPSpanExporter())
        of_requests = TracerProvider(None, resource, shutdown_on_exit=False)
        # It has the spans of sampled requests only, so all of its own are sampled.
        of_batches = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        for provider in (of_requests, of_batches):
            provider.add_span_processor(self._processor)
        self._requests = of_requests.get_tracer(_SERVICE)
        self._batches = of_batches.get_tracer(_SERVICE)
        self._recorder = Recorder()

    def close(self) -> None:
        """Export all spans."""
        self._recorder.close()
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def begin_request(self, head: Head, arrived_at: float) -> RequestSpan | None:
        """Begin the span of a request, in its client's trace if its head has one.

        None: the request is not sampled.
        """
        epoch_ns = _epoch_ns()
        context = propagate.extract(head.headers, Context(), _HEADERS)
        span = self._requests.start_span(
            head.method,
            context,
            trace.SpanKind.SERVER,
            start_time=_ns(epoch_ns, arrived_at),
        )
        return RequestSpan(span, epoch_ns) if span.is_recording() else None

    def request(
        self,
        request: RequestSpan,
        whole: Stage,
        outcome: Outcome,
        stages: Sequence[Stage],
    ) -> None:
        """End the span of a request, with a span for each of its stages."""
        self._recorder.record(partial(self._request, request, whole, outcome, stages))

    def batch(self, batch: Stage, outcome: Outcome, requests: Sequence[str]) -> None:
        """Record the span of a batch, with links to these spans of requests.

        `requests` are their `traceparent`s.
        """
        self._recorder.record(partial(self._batch, batch, outcome, requests))

    def _request(
        self,
        request: RequestSpan,
        whole: Stage,
        outcome: Outcome,
        stages: Sequence[Stage],
    ) -> None:
        span, epoch_ns = request.span, request.epoch_ns
        context = trace.set_span_in_context(span, Context())
        for stage in stages:
            child = self._requests.start_span(
                stage.name, context, start_time=_ns(epoch_ns, stage.begin)
            )
            child.end(_ns(epoch_ns, stage.end))
        span.update_name(whole.name)
        span.set_attributes(outcome.attributes)
        _end(span, outcome, _ns(epoch_ns, whole.end))

    def _batch(self, batch: Stage, outcome: Outcome, requests: Sequence[str]) -> None:
        epoch_ns = _epoch_ns()
        span = self._batches.start_span(
            batch.name,
            Context(),
            attributes=outcome.attributes,
            links=[trace.Link(_context_of(each)) for each in requests],
            start_time=_ns(epoch_ns, batch.begin),
        )
        _end(span, outcome, _ns(epoch_ns, batch.end))


class _Headers(Getter[Mapping[str, str]]):
    """Reads a header of a request, whose names are in lower case."""

    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        value = carrier.get(key.lower())
        return None if value is None else [value]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return list(carrier)


_HEADERS = _Headers()


def _end(span: trace.Span, outcome: Outcome, end_ns: int) -> None:
    if outcome.error:
        span.set_status(trace.StatusCode.ERROR, outcome.error)
    span.end(end_ns)


def _context_of(traceparent: str) -> trace.SpanContext:
    context = _W3C.extract({"traceparent": traceparent}, Context())
    return trace.get_current_span(context).get_span_context()


def _epoch_ns() -> int:
    """Return the time at which the monotonic clock began."""
    return time.time_ns() - time.monotonic_ns()


def _ns(epoch_ns: int, at: float) -> int:
    return epoch_ns + round(at * 1e9)
