"""The Flask application: all routes but those that predict.

Flask makes contexts, runs hooks and builds objects for each request, which takes
several times as long as a small model needs for a row. So it knows the routes that
predict only for 405 and OPTIONS.
"""

from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask, request
from flask import Response as FlaskResponse
from werkzeug.routing import BaseConverter
from werkzeug.wrappers import Response

from app.access.rights import Rights
from app.call import REQUEST_ID, new_id, valid_id
from app.protocols.protocol import Protocol
from app.protocols.v2 import VERSION
from app.web.request_headers import request_headers
from app.web.responses import install_error_handlers

# Endpoints, not paths, as some paths contain the name of a model.
# Pages, to which other sites may link. / is the page for browsers alone.
_PAGES = ("operations.root", "page.docs")
# Those that need no key: the pages, which hold no secret, and health.
_OPEN = (
    "operations.root",
    "page.docs",
    "page.file",
    "operations.healthz",
    "operations.readyz",
    "v2_health.live",
    "v2_health.ready",
    "v2_health.model_ready",
)
# Those that change the server:
CHANGING = ("v2_repository.load", "v2_repository.unload", "v2_repository.traffic")


class Application(Flask):
    """Flask, with an answer to OPTIONS that tells of health."""

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


def flask_app(rights: Rights, protocols: Iterable[Protocol]) -> Application:
    """Return an application that checks rights and writes errors as JSON.

    It declares the protocols' rules; their requests do not come to it, but for those
    of a wrong method.
    """
    app = Application("app", static_folder=None)
    # A path with two slashes is a 404 and no redirect.
    app.url_map.merge_slashes = False
    app.url_map.converters["version"] = _VersionConverter
    install_error_handlers(app)
    for protocol in protocols:
        for rule in protocol.rules:
            app.add_url_rule(rule, rule, methods=["POST"])

    @app.before_request
    def check() -> None:
        """Check rights before anything else."""
        address = request.environ["SERVER_NAME"]
        if request.endpoint in _OPEN:
            is_page = request.endpoint in _PAGES and request.method == "GET"
            rights.check_open(request_headers(), address, is_page=is_page)
        elif request.endpoint in CHANGING and request.method != "OPTIONS":
            rights.check_admin(request_headers(), address)
        else:
            rights.check(request_headers(), address)

    @app.after_request
    def name(response: Response) -> Response:
        """Add the request's id."""
        given = valid_id(request.headers.get(REQUEST_ID))
        response.headers[REQUEST_ID] = given or new_id()
        return response

    return app


class _VersionConverter(BaseConverter):
    """Matches a number of ASCII digits: Flask's int also takes those of all scripts."""

    regex = VERSION

    def to_python(self, value: str) -> int:
        return int(value)
