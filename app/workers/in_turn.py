"""Gunicorn's threaded worker, in which no request holds a thread while it waits.

To hand a request to a thread, have that thread wait for a batch, and take the
connection back costs more switches between threads than a row of a small model is
worth. So the main loop waits for all, and answers small requests from their first byte
to their last. Threads do what would keep it from the others; what only asks, and waits
for no model and no client, has threads of its own.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from selectors import EVENT_READ
from typing import Any, cast

from gunicorn.workers.gthread import TConn, ThreadWorker

from app.workers.answer import answer
from app.workers.body import read_directly
from app.workers.graceful import GracefulThreadWorker
from app.workers.patient import how_to_wait, plain_unreader_of
from app.workers.sending import Sending
from app.workers.turn import Turn

# What handling a request gives whose answer comes later.
_LATER = object()
# Threads for what Flask answers without delay, however busy the others are.
_QUICK_THREADS = 2


class InTurnWorker(GracefulThreadWorker):
    """A ThreadWorker that has as many requests at a time as connections."""

    def init_process(self) -> None:
        """No request is under way."""
        self._thread = threading.get_ident()
        # By the jobs that are waited for; and the earliest deadline that one of them,
        # or of those below, may have.
        self._turns: dict[Any, Turn] = {}
        self._look_at = math.inf
        # Connections with the beginning of a small request, and by when its rest is
        # waited for.
        self._begun: dict[TConn, float] = {}
        self._sending = Sending(self, self._end)
        self._quick = ThreadPoolExecutor(_QUICK_THREADS, "quick")
        super().init_process()

    def on_client_socket_readable(self, conn: TConn, client: Any) -> None:
        """Have it answered; the connection may stay with the poller meanwhile."""
        if conn not in self._begun:
            try:
                self.keepalived_conns.remove(conn)
            except ValueError:
                # Its last request is being answered, and this one has to wait; or that
                # has come to its end in this very round of events.
                if conn not in self._sending:
                    with suppress(KeyError, ValueError):
                        self.poller.unregister(client)
                return
        self.enqueue_req(conn)

    def enqueue_req(self, conn: TConn) -> None:
        """Answer a small request here once it is all there; all else in a thread."""
        until = self._begun.pop(conn, None)
        unreader = plain_unreader_of(conn)
        lacks = None if unreader is None else unreader.small_request_lacks()
        if unreader is None or lacks is None:
            if self._is_registered(conn):
                self.poller.unregister(conn.sock)
            if unreader is not None and self.alive and not unreader.has_header():
                self._finish(conn, how_to_wait(unreader))
            else:
                super().enqueue_req(conn)
        elif lacks and (until is None or until > time.monotonic()):
            self._wait_for_rest(conn, until)
        else:
            unreader.begin_header(0)
            result = ThreadWorker.handle(self, conn)
            if result is not _LATER:
                self._end(conn, bool(result))

    def _wait_for_rest(self, conn: TConn, until: float | None) -> None:
        """Come back with the next bytes, or when it is too late for them."""
        until = until or time.monotonic() + self._request_timeout_s()
        self._begun[conn] = until
        self._look_at = min(self._look_at, until)
        if not self._is_registered(conn):
            readable = partial(self.on_client_socket_readable, conn)
            self.poller.register(conn.sock, EVENT_READ, readable)

    def handle_request(self, req: Any, conn: TConn) -> Any:
        """Begin to answer; how it ends comes by `_end`."""
        timeout_s, pool = self._request_timeout_s(), self.tpool
        if self._is_main():
            # All of it is here, and only a POST takes long.
            timeout_s, pool = 0, pool if req.method == "POST" else self._quick
        read_directly(req, timeout_s, self._config()["MAX_BODY_BYTES"])
        turn = Turn(conn, pool)
        turn.line = self._line(req, turn)
        self._go_on(turn, turn.line.send, None)
        return _LATER

    def _keepalive_after(self, conn: TConn, keepalive: Any) -> Any:
        # Gunicorn asks when a request has been handled; here it may only have begun.
        if keepalive is _LATER:
            return _LATER
        return super()._keepalive_after(conn, keepalive)

    def wait_for_and_dispatch_events(self, timeout: float | None) -> None:
        """Wait no longer than until somebody's deadline."""
        if self._look_at <= time.monotonic():
            self._end_late()
        left_s = max(self._look_at - time.monotonic(), 0)
        super().wait_for_and_dispatch_events(
            left_s if timeout is None else min(timeout, left_s)
        )

    def finish_request(self, conn: TConn, fs: "Future[Any]") -> None:
        """A thread is done with a connection, whose answer may come later."""
        if fs.cancelled() or fs.exception() is not None or fs.result() is not _LATER:
            super().finish_request(conn, fs)

    async def _line(self, req: Any, turn: Turn) -> bool:
        conn = turn.conn
        keeps = await answer(self, req, conn, self._respond_in_turn, turn)
        return bool(self._keepalive_after(conn, keeps))

    async def _respond_in_turn(self, environ: Any, start_response: Any) -> Any:
        respond = cast("Any", self.wsgi).on_shared_thread
        return await respond(environ, start_response, self._wake)

    def _go_on(self, turn: Turn, step: Callable[[Any], Any], value: Any) -> None:
        """Take a coroutine to its next job, or to its end; in any thread."""
        keeps = False
        try:
            wanted = step(value)
        except StopIteration as end:
            keeps = end.value
        except OSError as error:
            self.log.debug("Closing connection. %s", error)
        except Exception as error:
            self.handle_error(None, turn.conn.sock, turn.conn.client, error)
        else:
            if not callable(wanted):
                self._in_main(self._await, turn, wanted)
            elif self._is_main():
                turn.pool.submit(self._call, turn, wanted)
            else:
                self._call(turn, wanted)
            return
        self._in_main(self._send_rest, turn, keeps)

    def _call(self, turn: Turn, function: Callable[[], Any]) -> None:
        try:
            value = function()
        except Exception as error:
            self._go_on(turn, turn.line.throw, error)
        else:
            self._go_on(turn, turn.line.send, value)

    def _await(self, turn: Turn, job: Any) -> None:
        if job.is_told():
            self._go_on(turn, turn.line.send, None)
        else:
            self._turns[job] = turn
            self._look_at = min(self._look_at, job.deadline)

    def _is_main(self) -> bool:
        return threading.get_ident() == self._thread

    def _in_main(self, function: Callable[..., None], *args: Any) -> None:
        if self._is_main():
            function(*args)
        else:
            self.method_queue.defer(function, *args)

    def _wake(self, jobs: Sequence[Any]) -> None:
        self.method_queue.defer(self._told, jobs)

    def _told(self, jobs: Sequence[Any]) -> None:
        for job in jobs:
            turn = self._turns.pop(job, None)
            if turn is not None:
                self._go_on(turn, turn.line.send, None)

    def _end_late(self) -> None:
        """Have those go on whose deadline is over."""
        now = time.monotonic()
        self._told([job for job in self._turns if job.deadline <= now])
        for conn in [conn for conn, until in self._begun.items() if until <= now]:
            self.enqueue_req(conn)
        deadlines = [job.deadline for job in self._turns]
        self._look_at = min([*deadlines, *self._begun.values()], default=math.inf)

    def _send_rest(self, turn: Turn, keeps: bool) -> None:
        if not turn.left:
            self._end(turn.conn, keeps)
            return
        if self._is_registered(turn.conn):
            self.poller.unregister(turn.conn.sock)
        self._sending.begin(turn.conn, turn.left, keeps)

    def murder_keepalived(self) -> None:
        """Close those, too, whose clients take nothing of their answers."""
        self._sending.end_late()
        super().murder_keepalived()

    def _end(self, conn: TConn, keeps: bool) -> None:
        """The connection waits for its next request, or goes Gunicorn's way."""
        unreader = cast("Any", conn.parser).unreader
        is_registered = self._is_registered(conn)
        if keeps and self.alive and is_registered and not unreader.has_more():
            conn.set_timeout()
            self.keepalived_conns.append(conn)
            return
        if is_registered:
            self.poller.unregister(conn.sock)
        if keeps and unreader.has_more():
            # Others come first; and a long row of requests would nest too deep.
            self.method_queue.defer(self._finish, conn, keeps)
        else:
            self._finish(conn, keeps)

    def _finish(self, conn: TConn, result: Any) -> None:
        done: Future[Any] = Future()
        done.set_result(result)
        self.finish_request(conn, done)

    def _request_timeout_s(self) -> float:
        timeout_s: float = self._config()["REQUEST_TIMEOUT_S"]
        return timeout_s

    def _config(self) -> Any:
        return cast("Any", self.wsgi).config

    def _is_registered(self, conn: TConn) -> bool:
        return conn.sock.fileno() in self.poller.get_map()
