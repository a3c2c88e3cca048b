"""HTTP clients that send at the same time, each on its own connection."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from testing.server import Reply


class Client:
    """One keep-alive connection; `model` is asked, else the default one."""

    def __init__(self, port: int, timeout_s: float = 60, model: str = "") -> None:
        self._path = f"/predict?model={model}" if model else "/predict"
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout_s)

    def __enter__(self) -> "Client":
        self._connection.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, instances: Any, headers: Mapping[str, str] | None = None) -> None:
        """POST rows as JSON to /predict, without waiting for the response."""
        body = json.dumps({"instances": instances}).encode()
        self._connection.request("POST", self._path, body, headers or {})

    def receive(self) -> Reply:
        """Return the response to what was sent."""
        reply = self._connection.getresponse()
        return Reply(reply.status, reply.headers, reply.read())


def at_once(
    port: int, rows: Sequence[Any], model: str = ""
) -> tuple[list[Reply], float]:
    """Post one row each at the same moment; replies, and seconds until the last."""
    replies: list[Reply | None] = [None] * len(rows)
    start = threading.Barrier(len(rows))
    began_at = [0.0] * len(rows)

    def run(place: int) -> None:
        with Client(port, model=model) as client:
            start.wait()
            began_at[place] = time.monotonic()
            client.send([rows[place]])
            replies[place] = client.receive()

    in_parallel(run, len(rows))
    took_s = time.monotonic() - min(began_at)
    return [reply for reply in replies if reply is not None], took_s


def in_parallel(work: Callable[[int], None], clients: int) -> None:
    """Run work(0) ... work(clients - 1) in threads; raise the first failure."""
    failures: list[BaseException] = []

    def run(place: int) -> None:
        try:
            work(place)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
