"""Gunicorn's threaded worker, with threads that no slow or broken client can keep.

Measured against Gunicorn 26.2: its gthread worker holds a thread for as long as a
client takes for a header or a body, for up to 5 s for one that connects and says
nothing, and for ever for one that takes no answer. It leaves a request unanswered that
came in one packet with the one before, and answers what is no HTTP with HTML.
"""

import ssl
import time
from concurrent.futures import Future
from typing import Any, cast

from gunicorn.http import RequestParser
from gunicorn.http2 import negotiation
from gunicorn.workers import gthread
from gunicorn.workers.gthread import TConn, ThreadWorker

from app.workers.body import DirectBody
from app.workers.quiet_socket import QuietSocket
from app.workers.request import RepeatedRequest
from app.workers.strict import JsonErrors
from app.workers.unreader import TimelyUnreader, limit_sending

# What `handle` returns for a connection that is to wait without a thread.
DEFER = gthread._DEFER  # type: ignore[attr-defined]
# Seconds for a whole header, from its first byte; no thread waits meanwhile.
_HEADER_S = 30.0
# Seconds that a thread waits for the rest of a header, or for a TLS handshake.
_BLOCKED_S = 5.0
# Seconds that a client may take nothing of an answer.
SENDING_S = 30.0


class PatientTls(ssl.SSLSocket):
    """The server's end of a TLS connection; a client may not linger in the handshake.

    Gunicorn makes it where gunicorn.conf.py's `ssl_context` names it.
    """

    def do_handshake(self, block: bool = False) -> None:
        """Shake hands, or raise a TimeoutError."""
        self.settimeout(_BLOCKED_S)
        super().do_handshake(block)


class PatientThreadWorker(JsonErrors, ThreadWorker):
    """A ThreadWorker that waits for clients without a thread, or not for long."""

    def init_process(self) -> None:
        """Set a limit on the listeners, which hand it down to connections."""
        for listener in self.sockets:
            limit_sending(listener, SENDING_S)
        # Thirty for a request, each of which Gunicorn looks up in two steps of Python.
        settings = self.cfg.settings.items()
        vars(self.cfg).update({name: setting.get() for name, setting in settings})
        super().init_process()

    def handle(self, conn: TConn) -> Any:
        """Answer a request if its header is there; else let the connection wait.

        One on which nothing has come waits as between two requests.
        """
        waits_for_tls = conn.cfg.is_ssl and not conn.initialized
        if self.alive and waits_for_tls and not conn.wait_for_data(0):
            return True
        try:
            unreader = unreader_of(conn)
        except OSError as error:
            self.log.debug("Closing connection. %s", error)
            return False
        if unreader is not None:
            if self.alive and not unreader.has_header():
                return how_to_wait(unreader)
            unreader.begin_header(_BLOCKED_S)
        return super().handle(conn)

    def _keepalive_after(self, conn: TConn, keepalive: bool) -> bool:
        """Have what is left of a body read, with the care for clients that stall."""
        body = cast("Any", conn.parser).mesg.body
        if keepalive and isinstance(body, DirectBody) and body.is_read():
            return True
        try:
            kept: bool = super()._keepalive_after(  # type: ignore[misc]
                conn, keepalive
            )
        except (OSError, ValueError) as error:
            # The request has its answer, and may not have an error as a second one.
            self.log.debug("Closing connection. %s", error)
            return False
        return kept

    def finish_request(self, conn: TConn, fs: "Future[Any]") -> None:
        """Go on at once with a request that is already here behind the last one."""
        if fs.result() is True and has_more(conn):
            self.enqueue_req(conn)
            return
        super().finish_request(conn, fs)
        if fs.result() is DEFER:
            # Half a header: Gunicorn gives it as much time as no header at all.
            age_s = cast("Any", conn.parser).unreader.header_age_s()
            conn.timeout = time.monotonic() + _HEADER_S - age_s


def unreader_of(conn: TConn) -> TimelyUnreader | None:
    """What reads the connection, put in its place first; None: HTTP/2 does.

    Raises:
        OSError: the TLS handshake fails, or takes too long.
    """
    if not conn.initialized:
        if not conn.cfg.is_ssl:
            conn.sock = QuietSocket.of(conn.sock)
        conn.init()
        if isinstance(conn.parser, RequestParser):
            ours = TimelyUnreader(conn.sock)
            ours.unread(conn.parser.unreader.take_buffered())
            conn.parser.unreader = ours
            cast("Any", conn.parser).mesg_class = RepeatedRequest
    unreader = getattr(conn.parser, "unreader", None)
    return unreader if isinstance(unreader, TimelyUnreader) else None


def plain_unreader_of(conn: TConn) -> TimelyUnreader | None:
    """What reads the connection without a wait; None: under TLS, and of HTTP/2."""
    cfg, client = conn.cfg, conn.client
    if cfg.is_ssl or negotiation.prior_knowledge_allowed(cfg, client):
        return None
    return unreader_of(conn)


def how_to_wait(unreader: TimelyUnreader) -> Any:
    """What `handle` returns for a connection whose header is not all here."""
    if not unreader.has_more():
        return True
    return unreader.header_age_s() < _HEADER_S and DEFER


def has_more(conn: TConn) -> bool:
    """Say whether bytes of a next request have been read with the one before."""
    unreader = getattr(conn.parser, "unreader", None)
    return isinstance(unreader, TimelyUnreader) and unreader.has_more()
