"""Spans of calls that predict: begun when they arrive, ended when they are told of."""

import re
from collections.abc import Sequence
from http import HTTPStatus

from app.call import Call
from app.tracing.spans import Outcome, Spans, Stage

# What V1 takes in any case, beside the names of models and labels.
_V1_WORDS = re.compile(
    r"^/v1/models/|/versions/(?=[0-9]+:)|/labels/(?=[^/:]+:)|:predict$", re.IGNORECASE
)
_LEADING_ZEROS = re.compile("(?<=/versions/)0+(?=[0-9])")


class TracedCalls:
    """Makes the spans of sampled calls."""

    def __init__(self, spans: Spans) -> None:
        """Store what makes spans."""
        self._spans = spans

    def begin(self, call: Call) -> None:
        """Begin the span of a call, if it is sampled."""
        call.span = self._spans.begin_request(call.head, call.arrived_at)

    def ended(self, calls: Sequence[Call]) -> None:
        """End the spans of calls."""
        for call in calls:
            if call.version is None and call.span is None:
                # It was refused before it was opened.
                self.begin(call)
            if call.span is not None:
                whole = Stage(span_name_of(call), call.arrived_at, call.ended_at)
                outcome = Outcome(_attributes(call), _error(call))
                self._spans.request(call.span, whole, outcome, _stages(call))


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


def _stages(call: Call) -> list[Stage]:
    """Return the stages that a call went through."""
    job = call.job
    if job is None or job.was_refused:
        return []
    decode = Stage("decode", call.arrived_at, job.enqueued_at)
    if job.error is not None or not job.finished_at:
        queued_until = job.enqueued_at + job.queue_s()
        return [decode, Stage("queue", job.enqueued_at, queued_until)]
    return [
        decode,
        Stage("queue", job.enqueued_at, job.started_at),
        Stage("infer", job.started_at, job.finished_at),
        Stage("encode", min(call.answered_at, call.ended_at), call.ended_at),
    ]
