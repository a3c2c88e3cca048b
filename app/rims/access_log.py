"""Calls in the form of Gunicorn's access log.

Gunicorn's loggers (`--access-logfile`, `--statsd-host`, a `--logger-class` of one's
own) take a WSGI response, request and environment. This module alone knows which of
their attributes they read.
"""

import time
from datetime import timedelta
from http.client import responses
from types import SimpleNamespace
from typing import Any

from app.call import Call, Reply
from app.rims.fields import to_wsgi
from app.rims.http_heads import WireHead


class AccessLog:
    """Logs answered calls with a logger of Gunicorn's, which may be one that counts."""

    def __init__(self, log: Any, cfg: Any) -> None:
        """Store the logger."""
        self._log = log
        self.is_on = bool(getattr(log, "access_log_enabled", True) or cfg.statsd_host)

    def write(self, call: Call, reply: Reply, sent_bytes: int) -> None:
        """Log a call, and the bytes of its reply's body."""
        response = SimpleNamespace(
            status=f"{reply.status} {responses.get(reply.status, '')}",
            headers=reply.headers(),
            sent=sent_bytes,
            response_length=sent_bytes,
        )
        request = SimpleNamespace(headers=list(call.head.headers.items()))
        took = timedelta(seconds=time.monotonic() - call.arrived_at)
        self._log.access(response, request, _environ(call), took)


def _environ(call: Call) -> dict[str, str]:
    head, peer = call.head, call.peer
    assert isinstance(head, WireHead)
    return {
        **dict(to_wsgi(head.headers)),
        "REMOTE_ADDR": peer.client,
        "REMOTE_PORT": str(peer.client_port or ""),
        # A malformed head may have none of these.
        "REQUEST_METHOD": head.method or "-",
        "RAW_URI": head.target or "-",
        "PATH_INFO": head.target.partition("?")[0],
        "QUERY_STRING": head.target.partition("?")[2],
        "SERVER_PROTOCOL": f"HTTP/{head.version or '-'}",
    }
