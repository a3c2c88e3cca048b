"""Gunicorn's threaded worker, with an end that loses nobody.

Measured against Gunicorn 26.2: at SIGTERM its gthread worker resets connections
that wait in the kernel (45 of a burst of 50), waits 30 s for idle ones, and, even
while serving, stops accepting for up to 2 s for each client that is slow to close.
gunicorn.conf.py puts this class in the place of the original.
"""

import select
import selectors
import socket
import time
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from gunicorn.workers.gthread import TConn

from app.workers.lingering import Lingering
from app.workers.patient import DEFER, PatientThreadWorker, has_more
from app.workers.room import Room

if TYPE_CHECKING:
    from flask import Flask

# Seconds that an unused connection is kept by a stopping worker: a client may be
# sending on it, and is told to close with the answer.
_IDLE_S = 1.0
# Seconds from one heartbeat to the next; the least --timeout is 1 s.
_HEARTBEAT_S = 0.25
# Seconds between looks at the clock while stopping.
_TICK_S = 0.25
# Seconds kept at the end of the graceful timeout to answer 503 to who is left.
_LAST_ANSWERS_S = 2.0


class GracefulThreadWorker(PatientThreadWorker):
    """A ThreadWorker that reads, closes and stops in its own way."""

    _stopping_since: float | None = None
    _notified_at = 0.0

    def init_process(self) -> None:
        """Nobody lingers, and there is room."""
        self._room = Room(self.log)
        self._lingering = Lingering(self)
        super().init_process()

    def is_parent_alive(self) -> bool:
        """Say so; where there is none, stop as one that was told to."""
        lives: bool = super().is_parent_alive()
        self.alive = self.alive and lives
        return lives

    def notify(self) -> None:
        """Show a heartbeat, but not at each event: it is a call of the file system."""
        now = time.monotonic()
        if now - self._notified_at >= _HEARTBEAT_S:
            self._notified_at = now
            super().notify()

    def accept(self, listener: socket.socket) -> None:
        """Accept a connection; where there is no room for it, no more for a while."""
        try:
            super().accept(listener)
        except OSError as error:
            if not self._room.is_used_up(error, self.nr_conns):
                raise
            super().set_accept_enabled(False)

    def set_accept_enabled(self, enabled: bool | None) -> None:
        """Gunicorn asks for True in each round in which no connection is accepted.

        It ends its loop with False: take in whoever has already connected.
        """
        has_room = self._room.is_there(self.nr_conns)
        super().set_accept_enabled(bool(enabled) and has_room)
        if not enabled and not self.alive:
            self._take_in_backlog()

    def wait_for_and_dispatch_events(self, timeout: float | None) -> None:
        """While stopping: show the arbiter a heartbeat, and keep to the time limit."""
        if not self.alive:
            now = time.monotonic()
            self._stopping_since = self._stopping_since or now
            patience_s = self.cfg.graceful_timeout - _LAST_ANSWERS_S
            if now - self._stopping_since > patience_s:
                cast("Flask", self.wsgi).extensions["basket"].close(timeout_s=0)
            self.notify()
            timeout = _TICK_S if timeout is None else min(timeout, _TICK_S)
        super().wait_for_and_dispatch_events(timeout)

    def murder_keepalived(self) -> None:
        """Close who lingers too long; while stopping, unused ones expire sooner."""
        self._lingering.end_late()
        if self._stopping_since is not None:
            idle_until = self._stopping_since + _IDLE_S
            for connection in (*self.keepalived_conns, *self.pending_conns):
                connection.timeout = min(connection.timeout or idle_until, idle_until)
        super().murder_keepalived()

    def finish_request(self, conn: TConn, fs: "Future[Any]") -> None:
        """Close what is to be closed without a wait for the client to close first."""
        keep = not fs.cancelled() and fs.exception() is None and fs.result()
        if keep and self.alive:
            super().finish_request(conn, fs)
            return
        if keep is DEFER or (keep and has_more(conn)):
            # Its request may be on the way: it is waited for, though not for long.
            self.enqueue_req(conn)
            return
        if keep:
            # It was told that it may send again.
            conn.sock.setblocking(False)
            conn.timeout = time.monotonic() + _IDLE_S
            self.keepalived_conns.append(conn)
            self.poller.register(
                conn.sock,
                selectors.EVENT_READ,
                partial(self.on_client_socket_readable, conn),
            )
            return
        self._lingering.close(conn)

    def _take_in_backlog(self) -> None:
        """Accept all connections that wait in the kernel, and then no more.

        A listener left open would let clients connect to a worker that never
        answers them.
        """
        while self.sockets:
            listener = self.sockets[-1]
            waiting = select.poll()
            waiting.register(listener, select.POLLIN)
            # So many may wait at a time; who comes later could go on for ever.
            for _ in range(self.cfg.backlog):
                if not waiting.poll(0):
                    break
                self.accept(listener)
            self.sockets.pop()
            listener.close()
