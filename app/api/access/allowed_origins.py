"""Answers to pages of other origins that the operator allows (CORS).

https://fetch.spec.whatwg.org/#http-cors-protocol
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from app.api.environ import REQUEST_ID, Environ, request_id
from app.api.exchange import HttpResponse

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

_ANY = "*"
_METHODS = "GET, HEAD, POST"
# Of requests: those that Basket reads and a browser asks for first.
_REQUEST_HEADERS = (
    "Authorization, Content-Encoding, Content-Type, Inference-Header-Content-Length, "
    "X-Client-Id, X-Request-Id, X-Request-Timeout-Ms, Traceparent, Tracestate, "
    "Ce-Id, Ce-Source, Ce-Specversion, Ce-Time, Ce-Type"
)
# Of responses: those that a page does not see without.
_RESPONSE_HEADERS = (
    "Inference-Header-Content-Length, Retry-After, Server-Timing, X-Batch-Size, "
    "X-Model-Version, X-Request-Id, Ce-Id, Ce-Source, Ce-Specversion, Ce-Time, Ce-Type"
)
# Chromium remembers an answer for at most two hours.
_MAX_AGE_S = "7200"


class AllowedOrigins:
    """The origins of BASKET_ALLOWED_ORIGINS."""

    def __init__(self, origins: Sequence[str]) -> None:
        """Store them as browsers write them, or ("*",)."""
        self._origins = frozenset(origins)

    def has(self, origin: str | None) -> bool:
        """Return whether pages of an origin may ask; None, "": it is no page's."""
        return bool(origin) and not self._origins.isdisjoint((_ANY, origin))

    def preflight(self, environ: Environ) -> HttpResponse | None:
        """Return the answer to a page that asks what it may send, None: it is none.

        It needs no key, as browsers send none with it, and says nothing of the server.
        """
        if (
            environ["REQUEST_METHOD"] != "OPTIONS"
            or "HTTP_ACCESS_CONTROL_REQUEST_METHOD" not in environ
            or not self.has(environ.get("HTTP_ORIGIN"))
        ):
            return None
        headers = [
            ("Access-Control-Allow-Methods", _METHODS),
            ("Access-Control-Allow-Headers", _REQUEST_HEADERS),
            ("Access-Control-Max-Age", _MAX_AGE_S),
            (REQUEST_ID, request_id(environ)),
        ]
        response = HttpResponse(b"", "text/plain", headers=headers)
        response.headers += self.headers(environ)
        return response

    def headers(self, environ: Environ) -> list[tuple[str, str]]:
        """Return what is added to each response, also to errors."""
        origin: str = environ.get("HTTP_ORIGIN", "")
        is_any = _ANY in self._origins
        # A cache must not give the answer of one origin to another.
        found = [] if is_any else [("Vary", "Origin")]
        if self.has(origin):
            allowed = _ANY if is_any else origin
            found.append(("Access-Control-Allow-Origin", allowed))
            found.append(("Access-Control-Expose-Headers", _RESPONSE_HEADERS))
        return found

    def adding(
        self, environ: Environ, start_response: "StartResponse"
    ) -> "StartResponse":
        """Return a start_response of WSGI that adds the headers."""

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            return start_response(status, [*headers, *self.headers(environ)], *rest)

        return start
