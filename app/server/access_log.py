"""Requests in the form of Gunicorn's access log.

Gunicorn's loggers (`--access-logfile`, `--statsd-host`, a `--logger-class` of one's
own) take a WSGI response, request and environment. This module alone knows which of
their attributes they read.
"""

import time
from datetime import timedelta
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

from app.server.request import Request


class AccessLog:
    """Logs finished requests with a logger of Gunicorn's."""

    def __init__(self, log: Any, cfg: Any) -> None:
        """Store the logger; it may be one that only counts."""
        self._log = log
        self._enabled = getattr(log, "access_log_enabled", True) or cfg.statsd_host

    def __call__(self, request: Request) -> None:
        """Log a request."""
        if not self._enabled:
            return
        headers, sent = _texts(request.head.headers), request.response
        response = SimpleNamespace(
            status=_status(sent.status),
            headers=_texts(sent.headers),
            sent=sent.sent_bytes,
            response_length=sent.sent_bytes,
        )
        took = timedelta(seconds=time.monotonic() - request.began_at)
        asked = SimpleNamespace(headers=headers)
        self._log.access(response, asked, _environ(request, headers), took)


def _environ(request: Request, headers: list[tuple[str, str]]) -> dict[str, str]:
    target = request.head.target.decode("latin-1")
    path, _, query = target.partition("?")
    client = request.client
    variables = {f"HTTP_{k.upper().replace('-', '_')}": v for k, v in headers}
    return variables | {
        "REMOTE_ADDR": client[0] if client else "",
        "REMOTE_PORT": str(client[1]) if client else "",
        "REQUEST_METHOD": request.head.method or "-",
        "RAW_URI": target or "-",
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "SERVER_PROTOCOL": f"HTTP/{request.head.version or '-'}",
    }


def _texts(headers: Any) -> list[tuple[str, str]]:
    return [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in headers
    ]


def _status(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase}" if status else "-"
