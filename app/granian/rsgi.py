"""What Granian serves over RSGI, its own interface: predictions on its event loop."""

import asyncio
from http import HTTPStatus

from app.api.application import Application
from app.api.exchange import Reply
from app.api.responses import nothing_at, reply_to
from app.granian.environ import complete, is_below
from app.granian.exchange import LoopExchange
from app.granian.loop import Loop
from app.granian.spec import Connection, Scope

# Those of routes that read no body.
_QUICK_METHODS = ("GET", "HEAD", "OPTIONS")


class Rsgi:
    """An RSGI application (Granian's docs/spec/RSGI.md) around the WSGI one."""

    _loop: Loop

    def __init__(self, application: Application, prefix: str = "") -> None:
        """Store the application, and the path that it is mounted on."""
        self._application = application
        self._prefix = prefix.rstrip("/")

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Granian has made its event loop."""
        timeout_s = self._application.config["REQUEST_TIMEOUT_S"]
        self._loop = Loop(loop, timeout_s)

    async def __rsgi__(self, scope: Scope, connection: Connection) -> None:
        """Answer one request."""
        if scope.proto != "http":
            connection.close(HTTPStatus.NOT_FOUND)
            return
        if is_below(scope.path, self._prefix):
            exchange = LoopExchange(scope, connection, self._loop, self._prefix)
            reply = await self._reply(exchange)
        else:
            reply = nothing_at(scope.path)
        headers = [("content-type", reply.content_type), *reply.headers]
        connection.response_bytes(reply.status, headers, reply.body)

    async def _reply(self, exchange: LoopExchange) -> Reply:
        handler = self._application.find(exchange.environ)
        if handler is None:
            return await self._other(exchange)
        return await self._application.predict(handler, exchange)

    async def _other(self, exchange: LoopExchange) -> Reply:
        """Have Flask answer, in another thread, once the body is here."""
        application, environ = self._application, exchange.environ
        is_quick = environ["REQUEST_METHOD"] in _QUICK_METHODS
        body = b""
        try:
            if not is_quick and exchange.has_body():
                # Of nobody else a body is kept.
                application.check_key(environ)
                body = await exchange.body(application.config["MAX_BODY_BYTES"])
        except Exception as error:
            return reply_to(error)
        complete(environ, exchange.scope, body)
        call = self._loop.block_shortly if is_quick else self._loop.block
        return await call(application.answer_by_flask, environ)
