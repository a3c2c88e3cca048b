"""Every error as JSON, whoever raised it, and the headers that belong to it."""

import logging

from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound

from app.codec import json_text
from app.errors import BasketError, Unauthorized, Unavailable

_log = logging.getLogger(__name__)


def json_response(value: object, status: int = 200) -> Response:
    """A JSON body with its content type."""
    return Response(json_text.dumps(value), status, mimetype="application/json")


def install_error_handlers(app: Flask) -> None:
    """Answer `{"error": "..."}` for our errors, HTTP's own, and bugs."""
    app.register_error_handler(BasketError, _ours)
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(Exception, _bug)


def _ours(error: BasketError) -> Response:
    g.rejection = error.reason
    response = json_response({"error": str(error)}, error.status)
    if isinstance(error, Unavailable):
        response.headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, Unauthorized):
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _http(error: HTTPException) -> Response:
    # Werkzeug's response carries the headers, such as a 405's Allow.
    headers = dict(error.get_headers())
    status = error.code or 500
    response = json_response({"error": _text(error)}, status)
    headers.pop("Content-Type", None)
    response.headers.update(headers)
    return response


def _text(error: HTTPException) -> str:
    if isinstance(error, NotFound):
        return f"there is nothing at {request.path[:200]}"
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        return f"{request.path[:200]} takes no {request.method}, but {allowed}"
    return error.description or error.name


def _bug(error: Exception) -> Response:
    _log.error("unexpected error", exc_info=error)
    return json_response({"error": "internal error; the server's log has more"}, 500)
