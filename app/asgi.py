"""The ASGI application: predictions on the event loop, Flask's routes in threads.

https://asgi.readthedocs.io/en/latest/specs/www.html. Any ASGI server runs it. Flask is
called over plain WSGI, with a whole body.
"""

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from app.api.application import Application
from app.api.asgi_exchange import AsgiExchange, Receive, Scope
from app.api.event_loop import EventLoop
from app.api.exchange import HttpResponse
from app.api.responses import error_response

Send = Callable[[Mapping[str, Any]], Awaitable[None]]

# Methods of routes that read no body and wait for no model.
_READING = ("GET", "HEAD", "OPTIONS")
# Threads for these, so that health and metrics answer however busy the others are.
_READING_THREADS = 2


class AsgiApplication:
    """Serves a Flask application, and answers what predicts below Flask."""

    def __init__(
        self,
        application: Application,
        request_timeout_s: float,
        max_body_bytes: int,
        close: Callable[..., None],
    ) -> None:
        """Store the parts; `close(timeout_s=...)` answers all who still wait."""
        self.application = application
        self._request_timeout_s = request_timeout_s
        self._max_body_bytes = max_body_bytes
        self._close = close
        self._loop: EventLoop | None = None
        self._reading = ThreadPoolExecutor(_READING_THREADS, "reading")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan (ASGI 3)."""
        if scope["type"] == "http":
            if self._loop is None:
                self._loop = EventLoop(self._request_timeout_s, self._max_body_bytes)
            exchange = AsgiExchange(scope, receive, self._loop)
            try:
                reply = await self._reply(scope, exchange, self._loop)
            finally:
                exchange.release()
            start, body = _events(reply)
            await send(start)
            await send(body)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": f"{scope['type']}.close"})

    async def _reply(
        self, scope: Scope, exchange: AsgiExchange, loop: EventLoop
    ) -> HttpResponse:
        application, environ = self.application, exchange.environ
        handler = application.find(environ)
        if handler is None:
            return await self._flask(scope, exchange)
        reply = await application.predict(handler, exchange)
        loop.flush_metrics()
        return reply

    async def _flask(self, scope: Scope, exchange: AsgiExchange) -> HttpResponse:
        """Have Flask answer in a thread, once the body is here."""
        application, environ = self.application, exchange.environ
        reads_only = environ["REQUEST_METHOD"] in _READING
        body = b""
        try:
            if not reads_only and exchange.has_body():
                # Nobody else's body is kept in memory.
                application.check_key(environ)
                body = await exchange.body(self._max_body_bytes)
        except Exception as error:
            return error_response(error)
        _complete(environ, scope, body)
        threads = self._reading if reads_only else None
        return await asyncio.get_running_loop().run_in_executor(
            threads, application.answer_by_flask, environ
        )

    async def _live(self, receive: Receive, send: Send) -> None:
        """Answer whoever still waits when the server says that it ends."""
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.get_running_loop().run_in_executor(
            self._reading, partial(self._close, timeout_s=0)
        )
        await send({"type": "lifespan.shutdown.complete"})


def _events(reply: HttpResponse) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ASGI's two events for a whole response."""
    headers = [(b"content-type", reply.content_type.encode("latin-1"))]
    has_length = False
    for name, value in reply.headers:
        key = name.lower().encode("latin-1")
        has_length = has_length or key == b"content-length"
        headers.append((key, value.encode("latin-1")))
    if not has_length:
        headers.append((b"content-length", b"%d" % len(reply.body)))
    start = {
        "type": "http.response.start",
        "status": reply.status,
        "headers": headers,
    }
    return start, {"type": "http.response.body", "body": reply.body}


def _complete(environ: dict[str, Any], scope: Scope, body: bytes) -> None:
    """Add what else WSGI promises an application (PEP 3333)."""
    host, port = scope.get("server") or ("localhost", 80)
    query = environ["QUERY_STRING"]
    if query:
        environ["RAW_URI"] += f"?{query}"
    environ |= {
        "SERVER_NAME": host,
        # A Unix socket has none.
        "SERVER_PORT": str(port or 80),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": io.BytesIO(body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
