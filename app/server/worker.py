"""Event-loop worker: requests wait for their response without occupying a thread.

It is gunicorn.conf.py's `worker_class`. It serves the ASGI application `app.asgi`, or
the application itself if that is one. `--threads` is the size of the event loop's
default executor.
"""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import uvloop
from gunicorn.workers.base import Worker

from app import tls
from app.server.access_log import AccessLog
from app.server.head import Limits
from app.server.http_server import HttpServer, Options
from app.server.lifespan import Lifespan
from app.server.peer import TrustedProxies

# Seconds between ticks: heartbeat, deadlines, accepting.
_TICK_S = 0.25
# The same during graceful shutdown.
_STOPPING_TICK_S = 0.05
# Seconds at the end of the graceful timeout in which the application answers 503 to
# requests that it can't finish.
_LAST_ANSWERS_S = 2.0
# Connections that a lone worker accepts in one round of its event loop.
_ACCEPT_BATCH = 64


class EventLoopWorker(Worker):
    """A worker that serves an ASGI application over HTTP/1.1."""

    def load_wsgi(self) -> None:
        """Load the WSGI application, and get its ASGI application."""
        super().load_wsgi()
        self._asgi: Any = getattr(self.wsgi, "asgi", self.wsgi)
        self._grpc: Any = getattr(self._asgi, "grpc", None)

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
        self._wakes = asyncio.Event()
        self._quick = False
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.add_signal_handler(signal.SIGINT, self._quit)
        loop.add_signal_handler(signal.SIGQUIT, self._quit)
        loop.add_signal_handler(signal.SIGUSR1, self.log.reopen_files)
        lifespan = Lifespan(self._asgi, self.log)
        # If a worker fails before it has booted, the arbiter ends instead of starting
        # worker after worker.
        self.booted = False
        await lifespan.startup()
        if self._grpc is not None:
            files, most = tls.files_of(self.cfg), self.cfg.worker_connections
            await self._grpc.start(most, files, self._count_request)
        self.booted = True
        server = HttpServer(
            self._asgi,
            self.sockets,
            options(self.cfg),
            self.log,
            AccessLog(self.log, self.cfg),
            self._count_request,
        )
        server.tick()
        while self.alive:
            self._tick(server)
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._wakes.wait()
        if not self._quick:
            await self._drain(server, lifespan)
        await lifespan.shutdown()
        if self._grpc is not None:
            await self._grpc.close()

    async def _drain(self, server: HttpServer, lifespan: Lifespan) -> None:
        """Answer all accepted requests within the graceful timeout."""
        server.stop()
        if self._grpc is not None:
            self._grpc.stop(self.cfg.graceful_timeout)
        began_at = server.now
        while self._is_busy(server) and not self._quick:
            self._tick(server)
            stopping_s = server.now - began_at
            if stopping_s > self.cfg.graceful_timeout:
                break
            if stopping_s > self.cfg.graceful_timeout - _LAST_ANSWERS_S:
                await lifespan.shutdown()
            await asyncio.sleep(_STOPPING_TICK_S)

    def _is_busy(self, server: HttpServer) -> bool:
        return server.is_busy() or (self._grpc is not None and self._grpc.is_busy())

    def _tick(self, server: HttpServer) -> None:
        self.notify()
        server.tick()
        if os.getppid() != self.ppid:
            self.alive = False

    def _count_request(self) -> None:
        self.nr += 1
        if self.nr >= self.max_requests and self.alive:
            self.log.info("Autorestarting worker after current request.")
            self._stop()

    def _stop(self) -> None:
        self.alive = False
        self._wakes.set()

    def _quit(self) -> None:
        """Quick shutdown, as in Gunicorn's workers at SIGINT and SIGQUIT."""
        self.cfg.worker_int(self)
        self._quick = True
        self._stop()


def options(cfg: Any) -> Options:
    """Return the settings of Gunicorn that this worker supports."""
    return Options(
        limits=Limits(
            cfg.limit_request_line,
            cfg.limit_request_fields,
            cfg.limit_request_field_size,
        ),
        keepalive_s=cfg.keepalive,
        max_connections=cfg.worker_connections,
        max_idle_connections=max(cfg.worker_connections - cfg.threads, 0),
        accept_batch=_ACCEPT_BATCH if cfg.workers == 1 else 1,
        backlog=cfg.backlog,
        proxies=TrustedProxies(cfg.forwarded_allow_ips, cfg.secure_scheme_headers),
        tls=tls.context_of(cfg),
    )
