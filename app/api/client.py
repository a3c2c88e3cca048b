"""What the connection tells about the client while its job waits."""

import socket
from collections.abc import Callable
from typing import Any

from app.hang_up import HungUp


def hung_up(environ: dict[str, Any]) -> Callable[[], bool]:
    """A check that says whether the client has closed its connection.

    Where the server gives no socket it always says no.
    """
    connection: socket.socket | None = environ.get("gunicorn.socket")
    if connection is None:
        return lambda: False
    if connection.fileno() < 0:
        return lambda: True
    return HungUp(connection)
