"""WSGI (PEP 3333): `wsgi:app` under Gunicorn's sync, gthread and gevent workers.

The thread of a call that predicts reads its body, begins it, waits, and finishes it.
All other requests are Flask's, also those that came in at another rim.
"""

import io
import re
import sys
from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from werkzeug.wrappers import Response

from app.access.allowed_origins import AllowedOrigins
from app.call import HEAD_KEY, JSON, Call, Head, Peer, Reply
from app.rims.fields import from_wsgi, to_wsgi
from app.serving.predictor import Predictor
from app.web.body import read_body

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication


class FlaskCalls:
    """Flask's answers to calls that predict nothing, whichever rim they came in at."""

    def __init__(self, flask: "WSGIApplication", origins: AllowedOrigins) -> None:
        """Store the parts; `origins` are those of pages that may ask."""
        self.flask = flask
        # Answers a page that asks what it may send.
        self.preflight = origins.preflight

    def answer(self, call: Call) -> Reply:
        """Answer a call, in a thread."""
        preflight = self.preflight(call.head)
        if preflight is not None:
            return preflight
        response = Response.from_app(self.flask, environ_of(call), buffered=True)
        kind = response.headers.pop("Content-Type", JSON)
        if response.status_code == HTTPStatus.NOT_MODIFIED:
            # Werkzeug adds its default.
            kind = ""
        if call.head.method != "HEAD":
            response.headers.pop("Content-Length", None)
        lines = "".join(f"{name}: {value}\r\n" for name, value in response.headers)
        lines += call.asks.lines
        return Reply(response.data, kind, response.status_code, lines)


class WsgiApplication:
    """The WSGI application; `server` is what it is a part of, for Basket's worker."""

    def __init__(
        self, server: Any, predictor: Predictor, flask_calls: FlaskCalls
    ) -> None:
        """Store the parts."""
        self.server = server
        self._predictor = predictor
        self._flask_calls = flask_calls

    def __call__(
        self, environ: dict[str, Any], start_response: "StartResponse"
    ) -> Iterable[bytes]:
        """Answer one request."""
        head = head_of(environ)
        asks = self._predictor.asks(head)
        if asks.protocol is not None:
            call = Call(head, b"", _peer_of(environ))
            read = partial(read_body, environ, self._predictor.max_body_bytes)
            return _send(self._predictor.answer(call, read), start_response)
        preflight = self._flask_calls.preflight(head)
        if preflight is not None:
            return _send(preflight, start_response)
        environ[HEAD_KEY] = head
        lines = Reply(b"", "", lines=asks.lines).headers()

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            return start_response(status, [*headers, *lines], *rest)

        return self._flask_calls.flask(environ, start)


def head_of(environ: dict[str, Any]) -> Head:
    """Return the head of a request over WSGI."""
    return Head(
        environ["REQUEST_METHOD"],
        environ["PATH_INFO"].encode("latin-1").decode(errors="surrogateescape"),
        environ.get("QUERY_STRING", ""),
        dict(from_wsgi(environ)),
        _raw_path_of(environ),
        environ.get("SERVER_PROTOCOL", "HTTP/1.1").removeprefix("HTTP/"),
    )


def _raw_path_of(environ: dict[str, Any]) -> str:
    """Return the path as the client sent it, percent-encoded, without a mount point."""
    sent = environ.get("RAW_URI") or environ.get("REQUEST_URI") or ""
    mounted_at = environ.get("SCRIPT_NAME", "")
    if not sent:
        path = mounted_at + environ["PATH_INFO"]
        sent = quote(path.encode("latin-1"), safe="/:")
    # An absolute-form request has the host.
    path = re.sub("^https?://[^/]*", "", sent, flags=re.IGNORECASE).partition("?")[0]
    return path.removeprefix(mounted_at)


def environ_of(call: Call) -> dict[str, Any]:
    """Return the WSGI environment of a call of another rim."""
    head, peer = call.head, call.peer
    query = f"?{head.query}" if head.query else ""
    return {
        "REQUEST_METHOD": head.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": head.path.encode(errors="surrogateescape").decode("latin-1"),
        "RAW_URI": head.raw_path + query,
        "QUERY_STRING": head.query,
        "REMOTE_ADDR": peer.client,
        "SERVER_NAME": peer.server,
        # A Unix socket has no port.
        "SERVER_PORT": str(peer.server_port or 80),
        "SERVER_PROTOCOL": f"HTTP/{head.version}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": peer.scheme,
        "wsgi.input": io.BytesIO(call.body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        **dict(to_wsgi(head.headers)),
        # A body in chunks has no length of its own.
        "CONTENT_LENGTH": str(len(call.body)),
        HEAD_KEY: head,
    }


def _peer_of(environ: dict[str, Any]) -> Peer:
    return Peer(
        environ.get("REMOTE_ADDR") or "",
        0,
        environ.get("SERVER_NAME") or "",
        0,
        environ.get("wsgi.url_scheme", "http"),
    )


def _send(reply: Reply, start_response: "StartResponse") -> Iterable[bytes]:
    phrase = HTTPStatus(reply.status).phrase.upper()
    start_response(f"{reply.status} {phrase}", reply.headers())
    return (reply.body,)
