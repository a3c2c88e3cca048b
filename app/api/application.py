"""The Flask application, with a shorter path for requests that predict.

Flask makes contexts, runs hooks and builds objects for each request, which takes
several times as long as a small model needs for a row. So Flask knows the routes that
predict only for 405 and OPTIONS, and their requests are answered here.
"""

import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from flask import Flask, request
from flask import Response as FlaskResponse
from werkzeug.wrappers import Response

from app import telemetry
from app.api.access.allowed_origins import AllowedOrigins
from app.api.environ import REQUEST_ID, Environ, request_id
from app.api.exchange import JSON, Exchange, HttpResponse
from app.api.responses import error_response

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

_T = TypeVar("_T")
Handler = Callable[[Exchange], Coroutine[Any, Any, HttpResponse]]
# Returns the handler of a POST to a path, or None if Flask answers it.
Find = Callable[[Environ], Handler | None]


class Application(Flask):
    """The WSGI application."""

    _finds: Sequence[Find] = ()
    # The ASGI application; `create_app` sets it.
    asgi: Callable[[Any, Any, Any], Coroutine[Any, Any, None]]
    # Pages of other origins that may ask; None: of none.
    allowed_origins: AllowedOrigins | None = None
    # Raises Unauthorized or Forbidden for a request that may not use the server.
    check_rights: Callable[[Environ], None]
    # Notes an error response to a request that predicts.
    note_error: Callable[[Exchange, HttpResponse], None]
    # Notes the status of each request that predicts.
    note_end: Callable[[Exchange, int], None]

    def install_handlers(
        self,
        finds: Sequence[Find],
        check_rights: Callable[[Environ], None],
        note_error: Callable[[Exchange, HttpResponse], None],
        note_end: Callable[[Exchange, int], None],
    ) -> None:
        """Answer each request for which one of `finds` returns a handler."""
        self._finds = finds
        self.check_rights = check_rights
        self.note_error = note_error
        self.note_end = note_end
        self.after_request(_name_request)

    def wsgi_app(
        self, environ: Environ, start_response: "StartResponse"
    ) -> Iterable[bytes]:
        """Answer one request (PEP 3333)."""
        origins = self.allowed_origins
        if origins is not None:
            preflight = origins.preflight(environ)
            if preflight is not None:
                return preflight.send(start_response)
            start_response = origins.adding(environ, start_response)
        handler = self.find(environ)
        if handler is None:
            return super().wsgi_app(environ, start_response)
        response = completed(self.predict(handler, Exchange(environ)))
        telemetry.flush()
        return response.send(start_response)

    def make_default_options_response(self) -> FlaskResponse:
        """Return GET's status and headers, if a route takes GET, and its methods.

        Load balancers ask for health so, HAProxy without being told to.
        """
        response = super().make_default_options_response()
        methods = ", ".join(sorted(response.allow))
        if "GET" in response.allow:
            view: Callable[..., Any] = self.view_functions[str(request.endpoint)]
            response = self.make_response(view(**(request.view_args or {})))
            response.set_data(b"")
        response.headers["Allow"] = methods
        return response

    def find(self, environ: Environ) -> Handler | None:
        """Return the handler of a request that predicts; None: Flask answers it."""
        if environ["REQUEST_METHOD"] == "POST":
            for find in self._finds:
                handler = find(environ)
                if handler is not None:
                    return handler
        return None

    def answer_by_flask(self, environ: Environ) -> HttpResponse:
        """Return Flask's whole response to any other request."""
        response = Response.from_app(super().wsgi_app, environ, buffered=True)
        kind = response.headers.pop("Content-Type", JSON)
        if response.status_code == HTTPStatus.NOT_MODIFIED:
            # Werkzeug adds its default.
            kind = ""
        return HttpResponse(
            response.data, kind, response.status_code, list(response.headers)
        )

    async def predict(self, handler: Handler, exchange: Exchange) -> HttpResponse:
        """Answer a request that predicts, with an error if it fails."""
        try:
            self.check_rights(exchange.environ)
            response = await handler(exchange)
        except Exception as error:
            response = error_response(error, is_prediction=True)
            self.note_error(exchange, response)
        response.headers.append((REQUEST_ID, exchange.request_id))
        self.count(exchange, response.status)
        self.note_end(exchange, response.status)
        return response

    def count(
        self, exchange: Exchange, status: int, amount: Callable[[float], float] = float
    ) -> None:
        """Record an inference request in the metrics, whether or not it failed.

        `amount` makes what is recorded of a number of seconds.
        """
        seconds = amount(time.monotonic() - exchange.arrived_at)
        if exchange.model is None:
            telemetry.request_without_model(status, seconds)
            return
        exchange.model.observer.request_answered(status, seconds)
        if exchange.job is not None and not exchange.job.was_refused:
            exchange.model.observer.job_left_queue(amount(exchange.job.queue_s()))


def _name_request(response: Response) -> Response:
    """Add the request's id to a response of Flask's."""
    response.headers[REQUEST_ID] = request_id(request.environ)
    return response


def completed(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Return the result of a coroutine that never suspends.

    Raises:
        RuntimeError: it suspends.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    raise RuntimeError("the coroutine awaits an event loop, and there is none")
