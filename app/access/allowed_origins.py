"""Answers to pages of other origins that the operator allows (CORS).

https://fetch.spec.whatwg.org/#http-cors-protocol
"""

from collections.abc import Sequence

from app.call import REQUEST_ID, Head, Reply, new_id

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
    """The origins of BASKET_ALLOWED_ORIGINS; maybe none."""

    def __init__(self, origins: Sequence[str]) -> None:
        """Store them as browsers write them, or ("*",)."""
        self._origins = frozenset(origins)

    def has(self, origin: str | None) -> bool:
        """Return whether pages of an origin may ask; None, "": it is no page's."""
        return bool(origin) and not self._origins.isdisjoint((_ANY, origin))

    def preflight(self, head: Head) -> Reply | None:
        """Return the answer to a page that asks what it may send, None: it is none.

        It needs no key, as browsers send none with it, and says nothing of the server.
        """
        if (
            head.method != "OPTIONS"
            or "access-control-request-method" not in head.headers
            or not self.has(head.headers.get("origin"))
        ):
            return None
        lines = (
            f"Access-Control-Allow-Methods: {_METHODS}\r\n"
            f"Access-Control-Allow-Headers: {_REQUEST_HEADERS}\r\n"
            f"Access-Control-Max-Age: {_MAX_AGE_S}\r\n"
            f"{REQUEST_ID}: {head.request_id or new_id()}\r\n"
        )
        return Reply(b"", "text/plain", lines=lines + self.lines(head))

    def lines(self, head: Head) -> str:
        """Return the header lines that are added to each response, also to errors."""
        if not self._origins:
            return ""
        origin = head.headers.get("origin", "")
        is_any = _ANY in self._origins
        # A cache must not give the answer of one origin to another.
        lines = "" if is_any else "Vary: Origin\r\n"
        if self.has(origin):
            allowed = _ANY if is_any else origin
            lines += (
                f"Access-Control-Allow-Origin: {allowed}\r\n"
                f"Access-Control-Expose-Headers: {_RESPONSE_HEADERS}\r\n"
            )
        return lines
