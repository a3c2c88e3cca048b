"""The page for browsers at /, the page of the API at /docs, and their files.

They hold no secret, so that they need no key: a browser sends none with the address
that a user types. What they show comes from routes that do.
"""

import importlib.resources
from importlib.resources.abc import Traversable
from pathlib import Path

from flask import Blueprint, Response, request

_OURS = Path(__file__).with_name("files")
# Swagger UI, as the package ships it.
_SWAGGER = importlib.resources.files("flask_swagger_ui") / "dist"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_SHIPPED = ("swagger-ui-bundle.js", "swagger-ui.css")
_FILES: dict[str, Traversable] = {
    **{each.name: each for each in sorted(_OURS.iterdir()) if each.suffix != ".html"},
    **{name: _SWAGGER / name for name in _SHIPPED},
}

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; "
        "base-uri 'none'; form-action 'none'"
    ),
    # Kept, but asked for again each time: a new version of Basket has other files.
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page_blueprint() -> Blueprint:
    """Return /docs and the files of both pages; / is a route of operations."""
    blueprint = Blueprint("page", __name__)
    names = ",".join(f'"{name}"' for name in _FILES)

    @blueprint.get("/docs")
    def docs() -> Response:
        return _response(_OURS / "docs.html")

    @blueprint.get(f"/page/<any({names}):file>")
    def file(file: str) -> Response:
        return _response(_FILES[file])

    return blueprint


def is_asked_for() -> bool:
    """Return whether the request prefers HTML to JSON, as browsers do."""
    best = request.accept_mimetypes.best_match(("application/json", "text/html"))
    return best == "text/html"


def index() -> Response:
    """Return the page."""
    return _response(_OURS / "index.html")


def _response(file: Traversable) -> Response:
    """Return a file with its headers, or a 304 if the client has it."""
    suffix = Path(file.name).suffix
    response = Response(file.read_bytes(), mimetype=_TYPES[suffix], headers=_HEADERS)
    response.add_etag()
    response.make_conditional(request)
    # Each server adds its own.
    del response.headers["Date"]
    return response
