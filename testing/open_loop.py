"""A load generator: an open loop, whose requests go out when they are due.

Latency counts from the time a request is due, so that a server that falls behind does
not slow the measurement down (Gil Tene's "coordinated omission"). In the closed loop a
client sends again as soon as it has an answer.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import cast

from testing.open_loop_requests import End, Outcome, Request
from testing.server import sum_of

# Seconds: a server may close an idle connection at the moment it is used again.
_KEEP_IDLE_S = 30.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close\r\n", re.IGNORECASE)


class Client:
    """Sends requests over as many keep-alive connections as are needed at once.

    `unexpected` counts responses without a request.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[_Connection] = []
        self._began_at = asyncio.get_running_loop().time()
        self.unexpected = 0

    def now_s(self) -> float:
        """Return the seconds since the start of the loop."""
        return asyncio.get_running_loop().time() - self._began_at

    async def ask(self, request: Request) -> Outcome:
        """Send a request now, and return its outcome."""
        outcome = Outcome(request, self.now_s())
        try:
            connection = self._take() or await self._connect()
        except OSError:
            outcome.end, outcome.ended_s = End.BROKEN, self.now_s()
            return outcome
        outcome.port = connection.port
        try:
            status, body = await connection.exchange(request)
        except TimeoutError:
            outcome.end = End.DISCONNECTED
        except ConnectionError:
            outcome.end = End.BROKEN
        else:
            outcome.end, outcome.status = End.ANSWERED, status
            outcome.right = request.is_right(status, body)
        finally:
            outcome.ended_s = self.now_s()
            if not connection.is_free():
                connection.abort()
            else:
                connection.idle_since = time.monotonic()
                self._idle.append(connection)
        return outcome

    async def fetch(self, path: str) -> str:
        """Return the body of a GET on a new connection."""
        connection = await self._connect()
        try:
            _, body = await connection.exchange(Request(0, path=path))
        finally:
            connection.abort()
        return body.decode()

    async def total(self, name: str) -> int:
        """Return the sum of all series of a metric, or of one if it has labels."""
        begins = [f"{name} "] if "{" in name else [f"{name}{{", f"{name} "]
        return int(sum_of(await self.fetch("/metrics"), *begins))

    async def open_loop(
        self,
        requests: Iterable[Request],
        wait_s: float = 60,
        outcomes: list[Outcome] | None = None,
    ) -> list[Outcome]:
        """Send each request when it is due; return `outcomes`, in order of their end.

        Requests that have no answer `wait_s` after the last was sent are canceled.
        """
        running: dict[asyncio.Task[Outcome], Request] = {}
        outcomes = [] if outcomes is None else outcomes
        self._began_at = asyncio.get_running_loop().time()

        def done(task: asyncio.Task[Outcome]) -> None:
            request = running.pop(task)
            never = Outcome(request, request.at_s, self.now_s())
            outcomes.append(never if task.cancelled() else task.result())

        for request in requests:
            early_s = request.at_s - self.now_s()
            if early_s > 0:
                await asyncio.sleep(early_s)
            task = asyncio.create_task(self.ask(request))
            running[task] = request
            task.add_done_callback(done)
        if running:
            await asyncio.wait(running, timeout=wait_s)
        left = list(running)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return outcomes

    async def closed_loop(
        self, clients: int, seconds: float, make: Callable[[float], Request]
    ) -> list[Outcome]:
        """Run clients that send again at once; `make` gets the time of sending."""
        outcomes: list[Outcome] = []
        self._began_at = asyncio.get_running_loop().time()

        async def run() -> None:
            while self.now_s() < seconds:
                outcomes.append(await self.ask(make(self.now_s())))

        await asyncio.gather(*(run() for _ in range(clients)))
        return outcomes

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().abort()

    def _take(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            idle_s = time.monotonic() - connection.idle_since
            if connection.is_free() and idle_s < _KEEP_IDLE_S:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> "_Connection":
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self), "127.0.0.1", self._port
        )
        return connection


class _Connection(asyncio.Protocol):
    """A keep-alive connection with one request at a time."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._buffer = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._usable = True
        self.idle_since = 0.0
        self.port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass.
        self._transport = cast(asyncio.Transport, transport)
        self.port = transport.get_extra_info("sockname")[1]

    def connection_lost(self, exc: Exception | None) -> None:
        self._usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError())

    def is_free(self) -> bool:
        return self._usable and self._answer is None

    def abort(self) -> None:
        self._usable = False
        self._transport.abort()

    async def exchange(self, request: Request) -> tuple[int, bytes]:
        """Return status and body; raise TimeoutError after `disconnect_s`."""
        if not self._usable:
            raise ConnectionResetError
        self._answer = asyncio.get_running_loop().create_future()
        message = request.head() + request.body
        if request.pause_s:
            half = len(message) - len(request.body) // 2
            self._transport.write(message[:half])
            await asyncio.sleep(request.pause_s)
            message = message[half:]
        self._transport.write(message)
        # On an exception the answer stays set: the connection is not used again.
        if request.disconnect_s is None:
            answer = await self._answer
        else:
            answer = await asyncio.wait_for(self._answer, request.disconnect_s)
        self._answer = None
        return answer

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        found = _LENGTH.search(head + b"\r\n")
        length = int(found[1]) if found else 0
        if len(rest) < length:
            return
        self._buffer = b""
        if _CLOSE.search(head + b"\r\n"):
            self._usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((int(head[9:12]), rest[:length]))
            rest = rest[length:]
        # A response to a request whose client has disconnected is expected.
        disconnected = self._answer is not None and self._answer.cancelled()
        if rest and not disconnected:
            self._client.unexpected += 1
            self._usable = False


@contextlib.asynccontextmanager
async def client_of(port: int) -> AsyncIterator[Client]:
    """Yield a client, and close its connections at the end."""
    client = Client(port)
    try:
        yield client
    finally:
        client.close()
