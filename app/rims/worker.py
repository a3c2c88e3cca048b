"""Event-loop worker: requests wait for their reply without occupying a thread.

It is gunicorn.conf.py's `worker_class`. `--threads` is the size of the event loop's
default executor.
"""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import uvloop
from gunicorn.workers.base import Worker

from app import tls

if TYPE_CHECKING:
    from app.rims.http_server import HttpServer

# Seconds between ticks: heartbeat, deadlines, accepting.
_TICK_S = 0.25
# The same during graceful shutdown.
_STOPPING_TICK_S = 0.05
# Seconds at the end of the graceful timeout in which the application answers 503 to
# requests that it can't finish.
_LAST_ANSWERS_S = 2.0


class EventLoopWorker(Worker):
    """A worker that serves calls over HTTP/1.1, and gRPC beside it.

    What it serves is the `server` of the WSGI application that Gunicorn loads:
    `loop_calls()` returns its calls on the running loop, `close_calls()` answers those
    that wait with 503, and may be called twice; `grpc` is None or a gRPC server.
    """

    # Seconds by their names in `HttpServer`, where they are not the usual ones.
    timeouts: ClassVar[dict[str, float]] = {}

    def load_wsgi(self) -> None:
        """Load the WSGI application, and get its server."""
        super().load_wsgi()
        wsgi_app = getattr(self.wsgi, "wsgi_app", None)
        self._app: Any = getattr(wsgi_app, "server", self.wsgi)

    def run(self) -> None:
        """Serve until a signal, the arbiter's death or max_requests."""
        loop = uvloop.new_event_loop()
        executor = ThreadPoolExecutor(self.cfg.threads, "worker")
        loop.set_default_executor(executor)
        try:
            loop.run_until_complete(self._serve(loop))
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            loop.close()

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not in the master, which has this module: workers that start at a HUP run new
        # code, and each makes request ids of its own.
        from app.rims.http1 import Connection  # noqa: PLC0415
        from app.rims.http_server import HttpServer  # noqa: PLC0415

        self._wakes = asyncio.Event()
        self._is_quick = False
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.add_signal_handler(signal.SIGINT, self._quit)
        loop.add_signal_handler(signal.SIGQUIT, self._quit)
        loop.add_signal_handler(signal.SIGUSR1, self.log.reopen_files)
        # If a worker fails before it has booted, the arbiter ends instead of starting
        # worker after worker.
        self.booted = False
        app = self._app
        connect = partial(Connection, app.loop_calls())
        server = HttpServer(self.sockets, self.cfg, self.log, connect, self.timeouts)
        server.requests_left = self.max_requests
        server.on_last_request = self._restart
        if app.grpc is not None:
            files = tls.files_of(self.cfg)
            most = self.cfg.worker_connections
            await app.grpc.start(most, files, server.count_request)
        self.booted = True
        while self.alive:
            self._tick(server)
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._wakes.wait()
        if not self._is_quick:
            await self._drain(server)
        await app.close_calls()
        if app.grpc is not None:
            await app.grpc.close()

    async def _drain(self, server: "HttpServer") -> None:
        """Answer all accepted requests within the graceful timeout."""
        app = self._app
        server.stop()
        if app.grpc is not None:
            app.grpc.stop(self.cfg.graceful_timeout)
        began_at = server.now
        while server.is_busy() or (app.grpc is not None and app.grpc.is_busy()):
            if self._is_quick:
                break
            self._tick(server)
            stopping_s = server.now - began_at
            if stopping_s > self.cfg.graceful_timeout:
                break
            if stopping_s > self.cfg.graceful_timeout - _LAST_ANSWERS_S:
                await app.close_calls()
            await asyncio.sleep(_STOPPING_TICK_S)

    def _tick(self, server: "HttpServer") -> None:
        self.notify()
        server.tick()
        if os.getppid() != self.ppid:
            self.alive = False

    def _restart(self) -> None:
        if self.alive:
            self.log.info("Autorestarting worker after current request.")
            self._stop()

    def _stop(self) -> None:
        self.alive = False
        self._wakes.set()

    def _quit(self) -> None:
        """Quick shutdown, as in Gunicorn's workers at SIGINT and SIGQUIT."""
        self.cfg.worker_int(self)
        self._is_quick = True
        self._stop()
