"""A worker whose main loop is driven by hand, its application, and its clients."""

import contextlib
import logging
import math
import re
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest
from gunicorn.config import Config
from gunicorn.workers.base import Worker

from app.workers.in_turn import InTurnWorker
from tests.support.tls import client_context

PATIENCE_S = 20
_STEP_S = 0.02
_LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n")


def post(path: str, body: bytes = b"", *headers: str) -> bytes:
    """A whole request."""
    lines = [f"POST {path} HTTP/1.1", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Promise:
    """What a coroutine waits for, as it does for a Job."""

    def __init__(self, deadline: float = math.inf) -> None:
        self.deadline = deadline
        self.told = False

    def is_told(self) -> bool:
        return self.told


class App:
    """An application whose routes are coroutine functions.

    A route gets the body, the environ and `wake`, and gives the parts of the answer's
    body, or all of it. `seen` has the paths, and the threads that they begin in.
    """

    def __init__(self) -> None:
        self.config = {"REQUEST_TIMEOUT_S": PATIENCE_S, "MAX_BODY_BYTES": 1 << 24}
        self.routes: dict[str, Callable[..., Awaitable[Any]]] = {}
        self.seen: list[tuple[str, int]] = []

    async def on_shared_thread(
        self, environ: Any, start_response: Any, wake: Any
    ) -> list[bytes]:
        path = environ["PATH_INFO"]
        self.seen.append((path, threading.get_ident()))
        body = environ["wsgi.input"].read()
        route = self.routes.get(path)
        given = await route(body, environ, wake) if route else b"no route"
        return self._begin(given, start_response)

    @staticmethod
    def _begin(given: bytes | list[bytes], start_response: Any) -> list[bytes]:
        parts = given if isinstance(given, list) else [given]
        length = sum(map(len, parts))
        start_response("200 OK", [("Content-Length", str(length))])
        return parts


class Client:
    """A connection that sends at once; the loop is driven while it reads."""

    def __init__(self, loop: "Loop") -> None:
        self._loop = loop
        self.sock = socket.create_connection(loop.address, PATIENCE_S)
        # A small packet does not wait for the last one's acknowledgement.
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self._data = b""

    def send(self, data: bytes) -> None:
        self.sock.setblocking(True)
        self.sock.sendall(data)
        self.sock.setblocking(False)

    def receive(self) -> tuple[int, bytes]:
        """The status and the body of the next answer."""
        self._loop.until(lambda: b"\r\n\r\n" in self._read())
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        found = _LENGTH.search(head + b"\r\n")
        assert found
        size = int(found[1])
        self._loop.until(lambda: len(self._read()) >= size)
        body, self._data = self._data[:size], self._data[size:]
        return int(head.split()[1]), body

    def speak_tls(self) -> None:
        """Shake hands; what is sent and received from now on is encrypted."""
        self.sock = client_context().wrap_socket(
            self.sock, do_handshake_on_connect=False
        )
        self._loop.until(self._has_shaken_hands)

    def _has_shaken_hands(self) -> bool:
        with contextlib.suppress(ssl.SSLWantReadError):
            cast("ssl.SSLSocket", self.sock).do_handshake()
            return True
        return False

    def ask(self, *request: Any) -> tuple[int, bytes]:
        self.send(post(*request))
        return self.receive()

    def has_nothing(self) -> bool:
        """Say whether no byte of an answer is here."""
        return not self._read()

    def has_ended(self) -> bool:
        """Wait until the server closes the connection; were there no more bytes?"""
        self._loop.until(self._is_closed)
        return not self._data

    def _read(self) -> bytes:
        with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
            while more := self.sock.recv(1 << 20):
                self._data += more
        return self._data

    def _is_closed(self) -> bool:
        self._read()
        try:
            return not socket.socket.recv(self.sock, 1, socket.MSG_PEEK)
        except BlockingIOError:
            return False


class Loop:
    """A worker of two threads as after `init_process`; each step of it is a call.

    `handed_on` has the connections that were given to threads.
    """

    def __init__(self, **settings: Any) -> None:
        config = Config()
        for name, value in settings.items():
            config.set(name, value)
        config.set("threads", 2)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        log = logging.getLogger("test")
        log.access = lambda *_: None  # type: ignore[attr-defined]
        args = (0, 0, [self._listener], None, 30, config, log)
        self.worker: Any = InTurnWorker(*args)
        self.worker.wsgi = self.app = App()
        with pytest.MonkeyPatch.context() as patch:
            # What it does beyond setting up the worker: signals, imports, the loop.
            patch.setattr(Worker, "init_process", lambda _: None)
            self.worker.init_process()
        self.handed_on: list[Any] = []
        self.worker.handle = self._handle
        queue = self.worker.method_queue
        self.worker.poller.register(queue.fileno(), 1, queue.run_callbacks)
        self.worker.set_accept_enabled(True)
        self._clients: list[Client] = []

    def connect(self) -> Client:
        self._clients.append(Client(self))
        return self._clients[-1]

    def step(self) -> None:
        """See to what is there now."""
        self.worker.wait_for_and_dispatch_events(0)

    def until(self, condition: Callable[[], Any]) -> None:
        """Go on until a condition holds."""
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_at
            self.worker.wait_for_and_dispatch_events(_STEP_S)

    def is_idle(self) -> bool:
        """Say whether the main loop has nothing to do, and would wait."""
        return self.worker.poller.select(0) == []

    def close(self) -> None:
        for client in self._clients:
            client.sock.close()
        self.worker._told(list(self.worker._turns))
        try:
            self.until(lambda: self.worker.nr_conns == 0)
        finally:
            self.worker.tpool.shutdown()
            self.worker.poller.close()
            self.worker.method_queue.close()
            self.worker.tmp.close()
            self._listener.close()

    def _handle(self, conn: Any) -> Any:
        self.handed_on.append(conn)
        return type(self.worker).handle(self.worker, conn)


@contextlib.contextmanager
def looping(**settings: Any) -> Iterator[Loop]:
    loop = Loop(**settings)
    try:
        yield loop
    finally:
        loop.close()
