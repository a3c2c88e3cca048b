"""The ASGI application: predictions on the event loop, Flask's routes in threads.

https://asgi.readthedocs.io/en/latest/specs/www.html. It runs under any ASGI server.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from app.api.application import Application
from app.api.asgi_exchange import AsgiExchange, Receive, Scope
from app.api.environ import REQUEST_ID, complete
from app.api.event_loop import EventLoop
from app.api.exchange import HttpResponse
from app.api.responses import error_response

if TYPE_CHECKING:
    from app.grpc.server import GrpcServer

Send = Callable[[Mapping[str, Any]], Awaitable[None]]
_T = TypeVar("_T")

# Methods of routes that read no body and wait for no model. They have threads of their
# own, so that health and metrics are answered while all others are busy.
_READ_METHODS = ("GET", "HEAD", "OPTIONS")
_READ_THREADS = 2


class AsgiApplication:
    """Serves a Flask application, and the inference requests that Flask does not."""

    # Serves gRPC on the event loop of Basket's own worker; `create_app` sets it.
    grpc: "GrpcServer | None" = None
    # Called with the event loop before the first request; `create_app` may set it.
    attach: Callable[[asyncio.AbstractEventLoop], None] | None = None

    def __init__(
        self,
        application: Application,
        request_timeout_s: float,
        max_body_bytes: int,
        close: Callable[..., None],
    ) -> None:
        """Store the parts; `close(timeout_s=...)` fails all jobs that still wait."""
        self.application = application
        self._request_timeout_s = request_timeout_s
        self._max_body_bytes = max_body_bytes
        self._close = close
        self._loop: EventLoop | None = None
        self._read_threads = ThreadPoolExecutor(_READ_THREADS, "reading")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan (ASGI 3)."""
        if scope["type"] == "http":
            response = await self._respond(scope, receive)
            start, body = _events(response)
            await send(start)
            await send(body)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": f"{scope['type']}.close"})

    def event_loop(self) -> EventLoop:
        """Return the waits of the event loop that runs."""
        if self._loop is None:
            self._loop = EventLoop(self._request_timeout_s, self._max_body_bytes)
        return self._loop

    def in_thread(
        self, function: Callable[[], _T], *, reads_only: bool
    ) -> "asyncio.Future[_T]":
        """Call a function in a thread; one that `reads_only` waits for no model."""
        threads = self._read_threads if reads_only else None
        return asyncio.get_running_loop().run_in_executor(threads, function)

    async def _respond(self, scope: Scope, receive: Receive) -> HttpResponse:
        exchange = AsgiExchange(scope, receive, self._loop or self.event_loop())
        # Where the request came in; a Unix socket has no address.
        server = scope.get("server")
        exchange.environ["SERVER_NAME"] = server[0] if server else "unix"
        origins = self.application.allowed_origins
        if origins is not None:
            preflight = origins.preflight(exchange.environ)
            if preflight is not None:
                return preflight
        handler = self.application.find(exchange.environ)
        try:
            if handler is None:
                response = await self._flask(scope, exchange)
            else:
                response = await self.application.predict(handler, exchange)
        finally:
            exchange.close()
        if origins is not None:
            response.headers += origins.headers(exchange.environ)
        return response

    async def _flask(self, scope: Scope, exchange: AsgiExchange) -> HttpResponse:
        """Run Flask in a thread, once the body has arrived."""
        application, environ = self.application, exchange.environ
        reads_only = environ["REQUEST_METHOD"] in _READ_METHODS
        body = b""
        try:
            if not reads_only and exchange.has_body():
                # Before the body takes memory.
                application.check_rights(environ)
                body = await exchange.body(self._max_body_bytes)
        except Exception as error:
            response = error_response(error)
            response.headers.append((REQUEST_ID, exchange.request_id))
            return response
        query = environ["QUERY_STRING"]
        if query:
            environ["RAW_URI"] += f"?{query}"
        _, port = scope.get("server") or ("", 80)
        # A Unix socket has no port.
        environ["SERVER_PORT"] = str(port or 80)
        environ["wsgi.url_scheme"] = scope.get("scheme", "http")
        complete(environ, f"HTTP/{scope['http_version']}", body)
        answer = partial(application.answer_by_flask, environ)
        return await self.in_thread(answer, reads_only=reads_only)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Acknowledge the startup; at the shutdown fail all jobs that still wait."""
        await receive()
        if self.attach is not None:
            self.attach(asyncio.get_running_loop())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.get_running_loop().run_in_executor(
            self._read_threads, partial(self._close, timeout_s=0)
        )
        await send({"type": "lifespan.shutdown.complete"})


def _events(response: HttpResponse) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the two ASGI events of a whole response."""
    headers = []
    if response.content_type:
        headers.append((b"content-type", response.content_type.encode("latin-1")))
    for name, value in response.headers:
        headers.append((_header_name(name), value.encode("latin-1")))
    # Without a type, as a 304, it has no length either. Flask knows the length of the
    # body that it leaves out of a response to HEAD.
    names = [name for name, _ in headers]
    if response.content_type and b"content-length" not in names:
        headers.append((b"content-length", b"%d" % len(response.body)))
    start = {
        "type": "http.response.start",
        "status": response.status,
        "headers": headers,
    }
    return start, {"type": "http.response.body", "body": response.body}


@lru_cache(maxsize=128)
def _header_name(name: str) -> bytes:
    return name.lower().encode("latin-1")
