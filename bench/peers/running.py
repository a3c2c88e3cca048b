"""A server that runs, and what one request to it looks like."""

import http.client
from collections.abc import Callable
from dataclasses import dataclass

from bench import processes
from bench.peers.loads import Prepared

PATH = "/predict"


@dataclass(frozen=True)
class Running:
    """A server that answers the POSTs of `prepared` at `path`.

    `batches` gives the rows and the batches that its model has run so far; None: it
    doesn't say.
    """

    port: int
    prepared: Prepared
    path: str = PATH
    batches: Callable[[], tuple[float, float]] | None = None

    @property
    def url(self) -> str:
        """Where wrk posts to."""
        return f"http://127.0.0.1:{self.port}{self.path}"

    def answers(self) -> bool:
        """Whether there is an answer to the first request, right or wrong."""
        body = self.prepared.bodies[0].read_bytes()
        kind = self.prepared.load.content_type
        return processes.answers(self.port, self.path, body, kind)


class Asker:
    """One kept-alive connection that asks for what it knows the answer to.

    `asked` counts requests, `wrong` those with another answer or none.
    """

    def __init__(self, server: Running) -> None:
        """Nothing is connected yet."""
        self._path, self._prepared = server.path, server.prepared
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", server.port, timeout=60
        )
        self._bodies = [body.read_bytes() for body in self._prepared.bodies]
        self.asked = self.wrong = 0

    def ask(self) -> None:
        """Send the next body and look at its answer."""
        place = self.asked % len(self._bodies)
        self.asked += 1
        headers = {"Content-Type": self._prepared.load.content_type}
        try:
            self._connection.request("POST", self._path, self._bodies[place], headers)
            reply = self._connection.getresponse()
            body = reply.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            self.wrong += 1
            return
        is_ok = reply.status == http.client.OK
        if not is_ok or not self._prepared.is_right(place, body):
            self.wrong += 1

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self._connection.close()
