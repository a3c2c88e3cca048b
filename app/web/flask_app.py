"""The Flask application: all routes but those that predict.

Flask makes contexts, runs hooks and builds objects for each request, which takes
several times as long as a small model needs for a row. So it knows the routes that
predict only for 405 and OPTIONS.
"""

from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask, Response, request
from flask.json.provider import DefaultJSONProvider
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from werkzeug.routing import IntegerConverter

from app.access.rights import Rights
from app.call import JSON, REQUEST_ID, new_id
from app.codec import json_text
from app.error_replies import error_reply
from app.protocols.protocol import Protocol
from app.protocols.v2 import VERSION
from app.web.head import head

# Endpoints, not paths, as some paths contain the name of a model.
# Pages, to which other sites may link. / is the page for browsers alone.
_PAGES = ("root", "page.docs")
# Those that need no key: the pages, which hold no secret, and health.
_OPEN = (
    *_PAGES,
    "page.file",
    "healthz",
    "readyz",
    "live",
    "ready",
    "model_ready",
)
# Those that change the server:
CHANGING = ("load", "unload", "traffic", "promote", "send_back")


class _Json(DefaultJSONProvider):
    """Writes what views return, such as arrays and tuples."""

    def response(self, *args: Any, **kwargs: Any) -> Response:
        """Return a JSON response of the only argument."""
        return Response(json_text.dumps(*args), content_type=JSON)


class Application(Flask):
    """Flask, with an answer to OPTIONS that tells of health."""

    json_provider_class = _Json

    def make_default_options_response(self) -> Response:
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


def flask_app(rights: Rights, protocols: Iterable[Protocol]) -> Application:
    """Return an application that checks rights and writes errors as JSON.

    It declares the protocols' rules; their requests do not come to it, but for those
    of a wrong method.
    """
    app = Application("app", static_folder=None)
    # A path with two slashes is a 404 and no redirect.
    app.url_map.merge_slashes = False
    app.url_map.converters["version"] = _VersionConverter
    for protocol in protocols:
        for rule in protocol.rules:
            app.add_url_rule(rule, rule, methods=["POST"])

    @app.before_request
    def check() -> None:
        """Check rights before anything else."""
        address = request.environ["SERVER_NAME"]
        if request.endpoint in _OPEN:
            is_page = request.endpoint in _PAGES and request.method == "GET"
            rights.check_open(head().headers, address, is_page=is_page)
        elif request.endpoint in CHANGING and request.method != "OPTIONS":
            rights.check_admin(head().headers, address)
        else:
            rights.check(head().headers, address)

    @app.after_request
    def name(response: Response) -> Response:
        """Add the request's id."""
        response.headers[REQUEST_ID] = head().request_id or new_id()
        return response

    @app.errorhandler(HTTPException)
    def explain(error: HTTPException) -> Any:
        """Answer what Flask refuses; a 405 has the methods in Allow."""
        text, path = error.description or error.name, request.path[:200]
        headers = {}
        if isinstance(error, NotFound):
            text = f"there is nothing at {path}"
        elif isinstance(error, MethodNotAllowed):
            headers["Allow"] = allowed = ", ".join(sorted(error.valid_methods or ()))
            text = f"{path} takes no {request.method}, but {allowed}"
        return {"error": text}, error.code or 500, headers

    @app.errorhandler(Exception)
    def refuse(error: Exception) -> Response:
        reply = error_reply(error)
        return Response(reply.body, reply.status, reply.headers())

    return app


class _VersionConverter(IntegerConverter):
    """Matches a number of ASCII digits: Flask's int also takes those of all scripts."""

    regex = VERSION
