"""One request of Gunicorn's threaded worker: the application's answer, in one piece.

Gunicorn's own way sends the header and the body in two calls, which wake the client
twice, and can hand files to the kernel, which no application here has.
"""

import datetime
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from typing import Any, Protocol, cast

from gunicorn import util
from gunicorn.http import wsgi
from gunicorn.workers.gthread import TConn, ThreadWorker

from app.workers.body import is_in_the_way
from app.workers.request import create

_HTTP_VERSION = (1, 1)
# What gives the body's parts, as a WSGI application does.
Respond = Callable[[Any, Any], Awaitable[Iterable[bytes]]]


class Sink(Protocol):
    """What a response is written to."""

    def sendall(self, data: bytes, /) -> None:
        """As a socket's."""
        ...


class WholeResponse(wsgi.Response):
    """A response whose header waits for the first bytes of the body."""

    _head = b""

    def default_headers(self) -> list[str]:
        """As Gunicorn's, which puts the date into words for each answer."""
        # Of what a client says it speaks, but no more than is spoken here.
        version = ".".join(
            map(str, min(self.req.version or _HTTP_VERSION, _HTTP_VERSION))
        )
        closes = "close" if self.should_close() else "keep-alive"
        lines = [
            f"HTTP/{version} {self.status}\r\n",
            f"Server: {self.version}\r\n",
            f"Date: {_date(int(time.time()))}\r\n",
            f"Connection: {'upgrade' if self.upgrade else closes}\r\n",
        ]
        if self.chunked:
            lines.append("Transfer-Encoding: chunked\r\n")
        return lines

    def send_headers(self) -> None:
        """Make the header, which says whether the connection may be used again."""
        if not self.headers_sent:
            if is_in_the_way(self.req):
                self.force_close()
            lines = self.default_headers()
            lines.extend(f"{name}: {value}\r\n" for name, value in self.headers)
            self._head = f"{''.join(lines)}\r\n".encode("latin-1")
            self.headers_sent = True

    def _emit_body(self, data: bytes) -> None:
        head, self._head = self._head, b""
        if head and not self.chunked:
            data = head + data
        elif head:
            util.write(self.sock, head)
        util.write(self.sock, data, self.chunked)

    def close(self) -> None:
        """Send what is left: a header without a body, the end of one in chunks."""
        self.send_headers()
        if self._head:
            util.write(self.sock, self._head)
        super().close()


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return util.http_date(second)


async def answer(
    worker: ThreadWorker, req: Any, conn: TConn, respond: Respond, sink: Sink
) -> bool:
    """Have a request responded to, and send what is given.

    As ThreadWorker.handle_request, whose settings and hooks hold here too. Says
    whether the connection may be used again. It suspends where `respond` does.
    """
    cfg = worker.cfg
    response, environ = None, cast("Any", {})
    try:
        cfg.pre_request(worker, req)
        begun = datetime.datetime.now()
        response, environ = create(req, conn, cfg, WholeResponse)
        response.sock = sink
        environ["wsgi.multithread"] = True
        _count(worker, response)
        parts = await respond(environ, response.start_response)
        try:
            for part in parts:
                response.write(part)
            response.close()
        finally:
            worker.log.access(response, req, environ, datetime.datetime.now() - begun)
            if hasattr(parts, "close"):
                parts.close()
        return not response.should_close()
    except OSError:
        raise
    except Exception:
        if response is None or not response.sent:
            raise
        # It is too late for an error of its own: the end of the connection says it.
        worker.log.exception("Error handling request")
        return False
    finally:
        _call_post_request(worker, req, environ, response)


def _call_post_request(
    worker: ThreadWorker, req: Any, environ: Any, response: Any
) -> None:
    try:
        worker.cfg.post_request(worker, req, environ, response)
    except Exception:
        worker.log.exception("Exception in post_request hook")


def _count(worker: ThreadWorker, response: WholeResponse) -> None:
    """Close the connection where the worker ends, or keeps none or no more.

    So that idle connections always leave room for others, all connections count: those
    that are busy now will be idle.
    """
    worker.nr += 1
    if worker.nr >= worker.max_requests and worker.alive:
        worker.log.info("Autorestarting worker after current request.")
        worker.alive = False
    keeps = worker.cfg.keepalive and worker.nr_conns <= worker.max_keepalived
    if not worker.alive or not keeps:
        response.force_close()
