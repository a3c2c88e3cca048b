"""A server that runs, and what one request to it looks like."""

import http.client
from collections.abc import Callable
from dataclasses import dataclass

from bench.peers.loads import Prepared

PATH = "/predict"


@dataclass(frozen=True)
class Running:
    """A ready server, which answers POST /predict.

    `batches` gives the rows and the batches that its model has run so far; None: it
    doesn't say.
    """

    port: int
    batches: Callable[[], tuple[float, float]] | None = None

    @property
    def url(self) -> str:
        """Where wrk posts to."""
        return f"http://127.0.0.1:{self.port}{PATH}"


class Asker:
    """One kept-alive connection that asks for what it knows the answer to.

    `asked` counts requests, `wrong` those with another answer or none.
    """

    def __init__(self, port: int, prepared: Prepared) -> None:
        """Nothing is connected yet."""
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._prepared = prepared
        self._bodies = [body.read_bytes() for body in prepared.bodies]
        self.asked = self.wrong = 0

    def ask(self) -> None:
        """Send the next body and look at its answer."""
        place = self.asked % len(self._bodies)
        self.asked += 1
        headers = {"Content-Type": self._prepared.load.content_type}
        try:
            self._connection.request("POST", PATH, self._bodies[place], headers)
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
