"""Clients that send requests all the time while a test changes the server."""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from testing.clients import Client, in_parallel

CLIENTS = 20
# Seconds between two requests of a client, which leave CPU time for loading.
_THINK_S = 0.2


class Traffic:
    """Twenty clients that send the same rows."""

    def __init__(
        self, port: int, rows: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        """Store the server's port, and what each request has."""
        self._port, self._rows, self._headers = port, rows, headers
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=in_parallel, args=(self._client, CLIENTS)
        )
        # Bodies of refused requests.
        self.failed: list[bytes] = []
        # When each of those was sent, and when it was refused.
        self.failed_spans: list[tuple[float, float]] = []
        # How often each version has answered with the first numbers of these rows.
        self.answers: Counter[tuple[str, tuple[float, ...]]] = Counter()

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def numbers(self) -> set[Sequence[float]]:
        """Return all predictions so far."""
        return {prediction for _, prediction in list(self.answers)}

    def _client(self, _: int) -> None:
        with Client(self._port) as client:
            while not self._over.wait(_THINK_S):
                sent_at = time.monotonic()
                client.send(self._rows, self._headers)
                reply = client.receive()
                if reply.status != 200:
                    self.failed_spans.append((sent_at, time.monotonic()))
                    self.failed.append(reply.body)
                    continue
                version = reply.headers["X-Model-Version"]
                prediction = tuple(row[0] for row in reply.json()["predictions"])
                self.answers[version, prediction] += 1
