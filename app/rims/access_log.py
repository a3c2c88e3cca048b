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


def log_call(log: Any, call: Call, reply: Reply, sent_bytes: int) -> None:
    """Log a call with a logger of Gunicorn's, and the bytes of its reply's body."""
    response = SimpleNamespace(
        status=f"{reply.status} {responses.get(reply.status, '')}",
        headers=reply.headers(),
        sent=sent_bytes,
        response_length=sent_bytes,
    )
    request = SimpleNamespace(headers=list(call.head.headers.items()))
    took = timedelta(seconds=time.monotonic() - call.arrived_at)
    try:
        log.access(response, request, _environ(call), took)
    except Exception:  # a logger of the user's own; the reply comes all the same
        log.exception("a request could not be logged")


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
