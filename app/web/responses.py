"""Errors as JSON responses, with the headers of their status."""

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound

from app.call import JSON
from app.codec import json_text
from app.error_replies import error_reply


def json_response(value: object, status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(json_text.dumps(value), status, content_type=JSON)


def install_error_handlers(app: Flask) -> None:
    """Answer `{"error": "..."}` for every error that Flask meets."""
    app.register_error_handler(HTTPException, _http)
    app.register_error_handler(Exception, _failed)


def _failed(error: Exception) -> Response:
    reply = error_reply(error)
    return Response(reply.body, reply.status, reply.headers())


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
