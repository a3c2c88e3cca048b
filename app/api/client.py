"""What the connection tells about the client while its job waits."""

import select
import socket
from collections.abc import Callable
from typing import Any


def hung_up(environ: dict[str, Any]) -> Callable[[], bool]:
    """A check that says whether the client has closed its connection.

    It asks the kernel and reads nothing, so it works under TLS and beside a
    pipelined request. Where the server gives no socket it always says no.
    """
    connection: socket.socket | None = environ.get("gunicorn.socket")
    if connection is None:
        return lambda: False
    poll = select.poll()
    try:
        poll.register(connection, select.POLLRDHUP)
    except (OSError, ValueError):
        return lambda: True
    return lambda: bool(poll.poll(0))
