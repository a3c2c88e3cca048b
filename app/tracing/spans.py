"""Spans of calls that predict and of batches, by OpenTelemetry's SDK.

The SDK reads its own environment variables: endpoint, headers, sampler, service name
and so on. https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Span, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from werkzeug.datastructures import Headers

from app.call import Call
from app.tracing.recorder import SpanRecorder

_SERVICE = "basket"
_W3C = TraceContextTextMapPropagator()
# What V1 takes in any case, beside the names of models and labels.
_V1_WORDS = re.compile(
    r"^/v1/models/|/versions/(?=[0-9]+:)|/labels/(?=[^/:]+:)|:predict$", re.IGNORECASE
)
_LEADING_ZEROS = re.compile("(?<=/versions/)0+(?=[0-9])")


Attributes = Mapping[str, str | int]
# The name of a stage, and when it began and ended, on the monotonic clock.
Stage = tuple[str, float, float]


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
        self.recorder = SpanRecorder()

    def close(self) -> None:
        """Export all spans."""
        self.recorder.close()
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def begin(self, call: Call) -> None:
        """Begin the span of a call, if it is sampled, in its client's trace if any."""
        span = self._requests.start_span(
            call.head.method,
            # Whatever the case of the names that a propagator asks for.
            propagate.extract(Headers(call.head.headers), Context()),
            trace.SpanKind.SERVER,
            start_time=_epoch_ns() + _ns(call.arrived_at),
        )
        if span.is_recording():
            carrier: dict[str, str] = {}
            _W3C.inject(carrier, trace.set_span_in_context(span))
            call.span, call.traceparent = span, carrier["traceparent"]

    def ended(self, calls: Sequence[Call]) -> None:
        """End the spans of calls, each with a span for each of its stages."""
        for call in calls:
            if call.version is None and call.span is None:
                # It was refused before it was opened.
                self.begin(call)
            if call.span is not None:
                # Without the call, which has its body.
                whole = (span_name_of(call), call.arrived_at, call.ended_at)
                attributes, error = _attributes(call), _error(call)
                stages = [*_stages(call)]
                self.recorder.record(
                    partial(self._end, call.span, whole, attributes, error, stages)
                )

    def _end(
        self,
        span: Span,
        whole: Stage,
        attributes: Attributes,
        error: str,
        stages: Sequence[Stage],
    ) -> None:
        name, arrived_at, ended_at = whole
        epoch_ns = (span.start_time or 0) - _ns(arrived_at)
        context = trace.set_span_in_context(span, Context())
        for stage, begin, end in stages:
            begin_ns = epoch_ns + _ns(begin)
            child = self._requests.start_span(stage, context, start_time=begin_ns)
            child.end(epoch_ns + _ns(end))
        span.update_name(name)
        span.set_attributes(attributes)
        _end_span(span, error, epoch_ns + _ns(ended_at))

    def make_batch(
        self, batch: Stage, attributes: Attributes, error: str, requests: Sequence[str]
    ) -> None:
        """Make the span of a batch, with links to these `traceparent`s of requests.

        `error` is "" if it succeeded.
        """
        name, began_at, ended_at = batch
        epoch_ns = _epoch_ns()
        span = self._batches.start_span(
            name,
            Context(),
            attributes=attributes,
            links=[trace.Link(_context_of(each)) for each in requests],
            start_time=epoch_ns + _ns(began_at),
        )
        _end_span(span, error, epoch_ns + _ns(ended_at))


def span_name_of(call: Call) -> str:
    """Return the name of a call's span, which has few values.

    A path without a model may be anything.
    """
    method = call.head.method
    if call.model is None:
        return method
    path = _V1_WORDS.sub(lambda found: found[0].lower(), _path(call))
    return f"{method} {_LEADING_ZEROS.sub('', path)}"


def _path(call: Call) -> str:
    path = call.head.path
    return path.encode(errors="surrogateescape").decode(errors="replace")


def _attributes(call: Call) -> dict[str, str | int]:
    """Return attributes by OpenTelemetry's names, and Basket's own."""
    attributes: dict[str, str | int] = {
        "http.request.method": call.head.method,
        "url.path": _path(call),
        "http.response.status_code": call.status,
    }
    if call.model is not None:
        attributes["basket.model"] = call.model.name
        attributes["basket.version"] = str(call.model.version)
    if call.job is not None and call.job.batch_rows:
        attributes["basket.batch_rows"] = call.job.batch_rows
    return attributes


def _error(call: Call) -> str:
    """Return the error's text if the server failed; the client's fault is none."""
    if call.is_gone and call.error is not None:
        return "canceled: the client disconnected"
    if call.error is None or call.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return ""
    return str(call.error)


def _stages(call: Call) -> Iterator[Stage]:
    """Yield the stages that a call went through."""
    job = call.job
    if job is None or job.was_refused:
        return
    yield "decode", call.arrived_at, job.enqueued_at
    if job.error is not None or not job.finished_at:
        yield "queue", job.enqueued_at, job.enqueued_at + job.queue_s()
        return
    yield "queue", job.enqueued_at, job.started_at
    yield "infer", job.started_at, job.finished_at
    yield "encode", min(call.answered_at, call.ended_at), call.ended_at


def _end_span(span: trace.Span, error: str, end_ns: int) -> None:
    if error:
        span.set_status(trace.StatusCode.ERROR, error)
    span.end(end_ns)


def _context_of(traceparent: str) -> trace.SpanContext:
    context = _W3C.extract({"traceparent": traceparent}, Context())
    return trace.get_current_span(context).get_span_context()


def _epoch_ns() -> int:
    """Return the time at which the monotonic clock began."""
    return time.time_ns() - time.monotonic_ns()


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
