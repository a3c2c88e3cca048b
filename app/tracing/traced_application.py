"""The Flask application, with spans of requests that predict."""

import json
import re
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from app.api.application import Application, Handler
from app.api.environ import path_of
from app.api.exchange import Exchange, HttpResponse
from app.tracing.exemplars import Traced
from app.tracing.spans import Outcome, Spans, Stage

# What V1 takes in any case, beside the names of models and labels.
_V1_WORDS = re.compile(
    r"^/v1/models/|/versions/(?=[0-9]+:)|/labels/(?=[^/:]+:)|:predict$", re.IGNORECASE
)
_LEADING_ZEROS = re.compile("(?<=/versions/)0+(?=[0-9])")


class TracedApplication(Application):
    """The WSGI application with traces; `create_app` sets `spans`."""

    spans: Spans

    async def predict(self, handler: Handler, exchange: Exchange) -> HttpResponse:
        """Answer a request that predicts, and record its spans if it is sampled."""
        request = self.spans.begin_request(exchange.environ, exchange.arrived_at)
        if request is None:
            return await super().predict(handler, exchange)
        exchange.traceparent = request.traceparent
        response: HttpResponse | None = None
        try:
            response = await super().predict(handler, exchange)
        finally:
            now = time.monotonic()
            whole = Stage(_name(exchange), exchange.arrived_at, now)
            outcome = Outcome(_attributes(exchange, response), _error(response))
            self.spans.request(request, whole, outcome, _stages(exchange, now))
        return response

    def count(
        self, exchange: Exchange, status: int, amount: Callable[[float], float] = float
    ) -> None:
        """Record an inference request, with its trace as the exemplar."""
        if exchange.traceparent is not None:
            amount = partial(Traced, traceparent=exchange.traceparent)
        super().count(exchange, status, amount)


def _name(exchange: Exchange) -> str:
    """Return the name of a request's span, which has few values.

    A path without a model may be anything.
    """
    method: str = exchange.environ["REQUEST_METHOD"]
    if exchange.model is None:
        return method
    path = _V1_WORDS.sub(lambda found: found[0].lower(), _path(exchange))
    return f"{method} {_LEADING_ZEROS.sub('', path)}"


def _path(exchange: Exchange) -> str:
    """Return the path of a request; WSGI decodes its bytes as Latin-1."""
    return path_of(exchange.environ).encode("latin-1").decode(errors="replace")


def _attributes(
    exchange: Exchange, response: HttpResponse | None
) -> dict[str, str | int]:
    """Return attributes by OpenTelemetry's names, and Basket's own."""
    attributes: dict[str, str | int] = {
        "http.request.method": exchange.environ["REQUEST_METHOD"],
        "url.path": _path(exchange),
    }
    if response is not None:
        attributes["http.response.status_code"] = response.status
    if exchange.model is not None:
        attributes["basket.model"] = exchange.model.name
        attributes["basket.version"] = str(exchange.model.version)
    if exchange.answer is not None:
        attributes["basket.batch_rows"] = exchange.answer.batch_rows
    return attributes


def _error(response: HttpResponse | None) -> str:
    """Return the error's text if the server failed; the client's fault is none."""
    if response is None:
        return "canceled: the client disconnected"
    if response.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return ""
    text: str = json.loads(response.body)["error"]
    return text


def _stages(exchange: Exchange, now: float) -> list[Stage]:
    """Return the stages that a request went through; encoding ends `now`."""
    answer, job = exchange.answer, exchange.job
    if answer is not None:
        return [
            Stage("decode", exchange.arrived_at, answer.enqueued_at),
            Stage("queue", answer.enqueued_at, answer.started_at),
            Stage("infer", answer.started_at, answer.finished_at),
            Stage("encode", exchange.answered_at, now),
        ]
    if job is None or job.was_refused:
        return []
    return [
        Stage("decode", exchange.arrived_at, job.enqueued_at),
        Stage("queue", job.enqueued_at, job.enqueued_at + job.queue_s()),
    ]
