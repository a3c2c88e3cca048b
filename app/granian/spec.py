"""What of RSGI 1.6 is used here (docs/spec/RSGI.md in Granian's repository)."""

from collections.abc import Iterable
from typing import Any, Protocol


class Headers(Protocol):
    """A request's headers, with names in lower case."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Each name and value; a name may be there more than once."""
        ...


class Scope(Protocol):
    """What is known of a request before its body: addresses as `host:port`."""

    proto: str
    http_version: str
    server: str
    client: str
    scheme: str
    method: str
    path: str
    query_string: str
    authority: str | None
    headers: Headers


class Connection(Protocol):
    """What RSGI calls the protocol: reads a request's body, and sends the answer.

    Each `Any` is awaited, and has the methods of a future.
    """

    def __call__(self) -> Any:
        """The whole body; RSGIProtocolClosed, a RuntimeError, where it is cut off."""
        ...

    def __aiter__(self) -> Any:
        """The parts of the body."""
        ...

    def client_disconnect(self) -> Any:
        """The end of the connection."""
        ...

    def response_bytes(
        self, status: int, headers: list[tuple[str, str]], body: bytes
    ) -> None:
        """Send the whole answer."""
        ...

    def close(self, status: int) -> None:
        """Refuse a WebSocket, which has this in the place of all the others."""
        ...
