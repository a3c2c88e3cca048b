"""Clients and checks that run beside the malformed requests."""

import json
import re
import socket
import threading
import time

from bench.fuzz import models
from bench.fuzz.exchange import Connection, NotHttp
from testing.memory import resident_mib
from testing.server import Server

# Of each worker, in MiB, from the end of the first tenth of the requests on.
MOST_GROWTH_MIB = 64
_SLOW_HEADERS = 24
_SLOW_BODIES = 3
_BAD_LINES = re.compile(r"Traceback|\[ERROR\]|\[CRITICAL\]")


class GoodClient(threading.Thread):
    """Sends valid requests one after the other and compares each answer."""

    def __init__(self, server: Server) -> None:
        """Read which models are served."""
        super().__init__(daemon=True)
        self._port = server.port
        key = {"Authorization": f"Bearer {models.KEY}"}
        names = server.request("GET", "/v1/models", headers=key).json()["models"]
        self._requests = models.good_requests(names)
        self._ended = threading.Event()
        self.answered = 0
        self.slowest_s = 0.0
        self.problems: list[str] = []

    def run(self) -> None:
        """Send until stop() is called."""
        connection = Connection(self._port)
        while not self._ended.wait(0.01):
            for request, wanted in self._requests:
                began_at = time.monotonic()
                try:
                    answer = connection.ask(request)
                    given = json.loads(answer.body)
                except (OSError, NotHttp, ValueError) as error:
                    answer, given = None, error
                if answer is None or given != wanted:
                    self.problems.append(f"the good client: {answer or given!r}"[:400])
                self.slowest_s = max(self.slowest_s, time.monotonic() - began_at)
                self.answered += 1
        connection.close()

    def stop(self) -> None:
        """Stop sending."""
        self._ended.set()
        self.join()


class SlowClients(threading.Thread):
    """Hold connections that send a byte now and then, and never the last one."""

    def __init__(self, port: int) -> None:
        """Store the server's address."""
        super().__init__(daemon=True)
        self._address = ("127.0.0.1", port)
        self._ended = threading.Event()

    def run(self) -> None:
        """Send a byte on each connection; connect again if the server has closed it."""
        held: dict[int, socket.socket] = {}
        while not self._ended.wait(0.1):
            for place in range(_SLOW_HEADERS + _SLOW_BODIES):
                try:
                    if place not in held:
                        held[place] = self._begin(place < _SLOW_BODIES)
                    held[place].sendall(b"x")
                except OSError:
                    if place in held:
                        held.pop(place).close()
        for connection in held.values():
            connection.close()

    def stop(self) -> None:
        """Close all connections."""
        self._ended.set()
        self.join()

    def _begin(self, in_body: bool) -> socket.socket:
        key = f"Authorization: Bearer {models.KEY}\r\n".encode()
        head = b"POST /predict HTTP/1.1\r\n" + key
        connection = socket.create_connection(self._address, 5)
        # So few bytes fit into the send buffer of a new connection.
        connection.sendall(head + b"Content-Length: 900\r\n\r\n" if in_body else head)
        return connection


class Watch:
    """Compares a server's workers, memory and log with those at the start."""

    def __init__(self, server: Server) -> None:
        """Store the workers' process ids."""
        self._server = server
        self._workers = server.workers()
        self._settled_mib: dict[int, float] = {}
        self.largest_mib: dict[int, float] = {}

    def look(self, is_settled: bool) -> None:
        """Record each worker's memory; growth counts from the first settled record."""
        for pid in self._workers:
            resident = resident_mib(pid)
            self.largest_mib[pid] = max(self.largest_mib.get(pid, 0.0), resident)
            if is_settled:
                self._settled_mib.setdefault(pid, resident)

    def growth_mib(self) -> float:
        """Return the largest growth of a worker since it settled."""
        grown = [resident_mib(pid) - mib for pid, mib in self._settled_mib.items()]
        return max(grown, default=0.0)

    def problems(self) -> list[str]:
        """Return what has changed and must not change."""
        found = []
        if self._server.workers() != self._workers:
            found.append(f"workers {self._workers} are now {self._server.workers()}")
        if self.growth_mib() > MOST_GROWTH_MIB:
            found.append(f"a worker has grown by {self.growth_mib():.0f} MiB")
        lines = self._server.log.read_text(errors="replace").splitlines()
        bad = [line for line in lines if _BAD_LINES.search(line)]
        found += [f"in the log: {line[:300]}" for line in bad[:5]]
        return found
