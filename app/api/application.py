"""Flask, below which inference requests are answered.

Flask makes contexts, runs hooks and builds objects for each request, which takes
several times as long as a small model needs for a row. The routes that predict are
declared to Flask, which knows them for 405 and OPTIONS, and answered here.
"""

import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from flask import Flask
from werkzeug.wrappers import Response

from app import telemetry
from app.api.environ import Environ
from app.api.exchange import JSON, Exchange, HttpResponse
from app.api.responses import error_response
from app.coroutines import completed
from app.errors import BasketError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

Handler = Callable[[Exchange], Coroutine[Any, Any, HttpResponse]]
# What answers a POST to a path; None: Flask does.
Find = Callable[[Environ], Handler | None]


class Application(Flask):
    """The WSGI application."""

    _finds: Sequence[Find] = ()
    # The same for an event loop; `create_app` sets it.
    asgi: Callable[[Any, Any, Any], Coroutine[Any, Any, None]]
    # Raises Unauthorized.
    check_key: Callable[[Environ], None]

    def answer_below(
        self, finds: Sequence[Find], check_key: Callable[[Environ], None]
    ) -> None:
        """Have requests that one of these finds a handler for never come to Flask.

        `check_key` raises Unauthorized for a request without a known API key.
        """
        self._finds = finds
        self.check_key = check_key

    def wsgi_app(
        self, environ: Environ, start_response: "StartResponse"
    ) -> Iterable[bytes]:
        """Answer one request (PEP 3333)."""
        handler = self.find(environ)
        if handler is None:
            return super().wsgi_app(environ, start_response)
        reply = completed(self.predict(handler, Exchange(environ)))
        telemetry.flush()
        return reply.send(start_response)

    def find(self, environ: Environ) -> Handler | None:
        """What answers a request that predicts; None: Flask does."""
        if environ["REQUEST_METHOD"] == "POST":
            for find in self._finds:
                handler = find(environ)
                if handler is not None:
                    return handler
        return None

    def answer_by_flask(self, environ: Environ) -> HttpResponse:
        """The whole answer to any other request."""
        response = Response.from_app(super().wsgi_app, environ, buffered=True)
        kind = response.headers.pop("Content-Type", JSON)
        return HttpResponse(
            response.data, kind, response.status_code, list(response.headers)
        )

    async def predict(self, handler: Handler, exchange: Exchange) -> HttpResponse:
        """Answer a request that predicts, whatever goes wrong."""
        try:
            self.check_key(exchange.environ)
            reply = await handler(exchange)
        except Exception as error:
            reply = error_response(error)
            if isinstance(error, BasketError):
                telemetry.rejected(error.reason)
        _count(exchange, reply.status)
        return reply


def _count(exchange: Exchange, status: int) -> None:
    """Put an inference request into the metrics, a failed one too."""
    took_s = time.monotonic() - exchange.arrived_at
    if exchange.model is None:
        telemetry.request_without_model(status, took_s)
        return
    exchange.model.observer.request_answered(status, took_s)
    if exchange.job is not None and not exchange.job.was_refused:
        exchange.model.observer.job_left_queue(exchange.job.queue_s())
