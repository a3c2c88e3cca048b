"""What must hold while the requests come: the processes, their memory, their log."""

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
    """Asks right requests one after the other and compares each answer."""

    def __init__(self, server: Server) -> None:
        """Store where the server listens, and what it serves."""
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
        """Ask until it is told to stop."""
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
        """Ask no more."""
        self._ended.set()
        self.join()


class SlowClients(threading.Thread):
    """Hold connections on which a byte comes now and then, and never the last one."""

    def __init__(self, port: int) -> None:
        """Store where the server listens."""
        super().__init__(daemon=True)
        self._address = ("127.0.0.1", port)
        self._ended = threading.Event()

    def run(self) -> None:
        """Send a byte on each, and connect again where the server has hung up."""
        held: list[socket.socket | None] = [None] * (_SLOW_HEADERS + _SLOW_BODIES)
        while not self._ended.wait(0.1):
            for place, connection in enumerate(held):
                try:
                    if connection is None:
                        held[place] = self._begin(place < _SLOW_BODIES)
                    else:
                        connection.sendall(b"x")
                except OSError:
                    _close(connection)
                    held[place] = None
        for connection in held:
            _close(connection)

    def stop(self) -> None:
        """Let go of all."""
        self._ended.set()
        self.join()

    def _begin(self, in_body: bool) -> socket.socket:
        key = f"Authorization: Bearer {models.KEY}\r\n".encode()
        head = b"POST /predict HTTP/1.1\r\n" + key
        connection = socket.create_connection(self._address, 5)
        # To a new connection this much can always be sent.
        connection.sendall(head + b"Content-Length: 900\r\n\r\n" if in_body else head)
        return connection


def _close(connection: socket.socket | None) -> None:
    if connection is not None:
        connection.close()


class Watch:
    """Compares a server with what it was at the start."""

    def __init__(self, server: Server) -> None:
        """Note the workers."""
        self._server = server
        self._workers = server.workers()
        self._settled_mib: dict[int, float] = {}
        self.largest_mib: dict[int, float] = {}

    def look(self, is_settled: bool) -> None:
        """Note each worker's memory; growth counts once the server has settled."""
        for pid in self._workers:
            resident = resident_mib(pid)
            self.largest_mib[pid] = max(self.largest_mib.get(pid, 0.0), resident)
            if is_settled:
                self._settled_mib.setdefault(pid, resident)

    def growth_mib(self) -> float:
        """The most that a worker has grown since it settled."""
        grown = [resident_mib(pid) - mib for pid, mib in self._settled_mib.items()]
        return max(grown, default=0.0)

    def problems(self) -> list[str]:
        """What has changed that must not change."""
        found = []
        if self._server.workers() != self._workers:
            found.append(f"workers {self._workers} are now {self._server.workers()}")
        if self.growth_mib() > MOST_GROWTH_MIB:
            found.append(f"a worker has grown by {self.growth_mib():.0f} MiB")
        lines = self._server.log.read_text(errors="replace").splitlines()
        bad = [line for line in lines if _BAD_LINES.search(line)]
        found += [f"in the log: {line[:300]}" for line in bad[:5]]
        return found
