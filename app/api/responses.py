"""Errors as JSON responses, with the headers of their status."""

import logging

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound

from app import telemetry
from app.api.exchange import JSON, HttpResponse
from app.codec import compression, json_text
from app.errors import (
    BasketError,
    Forbidden,
    TooSlow,
    Unauthorized,
    Unavailable,
    UnknownEncoding,
)

_log = logging.getLogger(__name__)


def json_response(value: object, status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(json_text.dumps(value), status, content_type=JSON)


def install_error_handlers(app: Flask) -> None:
    """Answer `{"error": "..."}` for every error that Flask meets."""
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(Exception, _failed)


def error_response(error: Exception, *, is_prediction: bool = False) -> HttpResponse:
    """Return the response to a failed request; log an unexpected error.

    The metrics count the reasons of predictions, which the caller flushes, and on all
    routes those of requests without the right to use them.
    """
    if not isinstance(error, BasketError):
        _log.error("unexpected error", exc_info=error)
        return _refusal("internal error; the server's log has more", 500)
    if is_prediction or isinstance(error, (Unauthorized, Forbidden)):
        telemetry.rejected(error.reason)
        if not is_prediction:
            telemetry.flush()
    response = _refusal(str(error), error.status)
    if isinstance(error, Unavailable):
        response.headers.append(("Retry-After", str(error.retry_after_s)))
    if isinstance(error, TooSlow):
        # The rest of its body would be in the way of the next request.
        response.headers.append(("Connection", "close"))
    if isinstance(error, Unauthorized):
        response.headers.append(("WWW-Authenticate", "Bearer"))
    if isinstance(error, UnknownEncoding):
        known = ", ".join(compression.ENCODINGS)
        response.headers.append(("Accept-Encoding", known))
    return response


def _refusal(text: str, status: int) -> HttpResponse:
    return HttpResponse(json_text.dumps({"error": text}), status=status)


def _failed(error: Exception) -> Response:
    made = error_response(error)
    response = Response(made.body, made.status, content_type=made.content_type)
    response.headers.extend(made.headers)
    return response


def _http(error: HTTPException) -> Response:
    # Werkzeug's response carries the headers, such as a 405's Allow.
    headers = dict(error.get_headers())
    status = error.code or 500
    response = json_response({"error": _text(error)}, status)
    headers.pop("Content-Type", None)
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(sorted(error.valid_methods or ()))
    response.headers.update(headers)
    return response


def _text(error: HTTPException) -> str:
    if isinstance(error, NotFound):
        return f"there is nothing at {request.path[:200]}"
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        return f"{request.path[:200]} takes no {request.method}, but {allowed}"
    return error.description or error.name
