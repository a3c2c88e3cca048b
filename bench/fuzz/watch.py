"""Clients and checks that run beside the malformed requests."""

import json
import re
import socket
import threading
import time

from bench.fuzz import models
from testing.exchange import Connection, NotHttp
from testing.memory import resident_mib
from testing.server import Server

# Of each worker, in MiB, from the end of the first tenth of the requests on.
_MOST_GROWTH_MIB = 64
_SLOW_HEADERS = 24
_SLOW_BODIES = 3
_BAD_LINES = re.compile(r"Traceback|\[ERROR\]|\[CRITICAL\]")


class Watch:
    """Runs a good client and slow clients, and watches workers, memory and log.

    Within the block the good client sends valid requests one after the other; slow
    clients send a byte now and then, and never the last one of a request.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._workers = server.workers()
        key = dict([models.AUTHORIZATION])
        listed = server.request("GET", "/v1/models", headers=key)
        self._requests = models.good_requests(listed.json()["models"])
        self._settled_mib: dict[int, float] = {}
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True)
            for run in (self._send_good_requests, self._hold_slow_connections)
        ]
        self._found: list[str] = []
        self.answered = 0
        self.slowest_s = 0.0
        self.largest_mib = self.growth_mib = 0.0

    def __enter__(self) -> "Watch":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def look(self, is_settled: bool) -> None:
        """Read each worker's memory; growth counts from the first settled reading."""
        for pid in self._workers:
            mib = resident_mib(pid)
            self.largest_mib = max(self.largest_mib, mib)
            if is_settled:
                grown_mib = mib - self._settled_mib.setdefault(pid, mib)
                self.growth_mib = max(self.growth_mib, grown_mib)

    def __str__(self) -> str:
        return (
            f"good client: {self.answered} right answers, the slowest in "
            f"{self.slowest_s:.2f} s\n"
            f"memory of the worker: {self.largest_mib:.0f} MiB at most, "
            f"{self.growth_mib:+.0f} MiB since the first tenth"
        )

    def problems(self) -> list[str]:
        """Return wrong answers to the good client, and what must not have changed."""
        found = list(self._found)
        if self._server.workers() != self._workers:
            found.append(f"workers {self._workers} are now {self._server.workers()}")
        if self.growth_mib > _MOST_GROWTH_MIB:
            found.append(f"a worker has grown by {self.growth_mib:.0f} MiB")
        lines = self._server.log.read_text(errors="replace").splitlines()
        bad = [line for line in lines if _BAD_LINES.search(line)]
        return found + [f"in the log: {line[:300]}" for line in bad[:5]]

    def _send_good_requests(self) -> None:
        connection = Connection(self._server.port)
        while not self._ended.wait(0.01):
            for request, wanted in self._requests:
                began_at = time.monotonic()
                try:
                    answer = connection.ask(request)
                    is_right = json.loads(answer.body) == wanted
                    told = repr(answer)
                except (OSError, NotHttp, ValueError) as error:
                    is_right, told = False, repr(error)
                if not is_right:
                    self._found.append(f"the good client: {told}"[:400])
                self.slowest_s = max(self.slowest_s, time.monotonic() - began_at)
                self.answered += 1
        connection.close()

    def _hold_slow_connections(self) -> None:
        """Connect again whenever the server has closed a connection."""
        held: dict[int, socket.socket] = {}
        key = ": ".join(models.AUTHORIZATION)
        head = f"POST /predict HTTP/1.1\r\nHost: a\r\n{key}\r\n".encode()
        bodies = [head + b"Content-Length: 900\r\n\r\n"] * _SLOW_BODIES
        while not self._ended.wait(0.1):
            for place, begin in enumerate([*bodies, *[head] * _SLOW_HEADERS]):
                try:
                    if place not in held:
                        address = ("127.0.0.1", self._server.port)
                        held[place] = socket.create_connection(address, 5)
                        held[place].sendall(begin)
                    held[place].sendall(b"x")
                except OSError:
                    if place in held:
                        held.pop(place).close()
        for connection in held.values():
            connection.close()
