"""An inference request on an event loop, and as ASGI has it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import quote

from app.api.body import too_large, too_slow, unreadable
from app.api.environ import Environ, variable
from app.api.event_loop import EventLoop
from app.api.exchange import Exchange, Threads
from app.api.service_threads import run_around, run_in
from app.batching.job import Job, Wake
from app.errors import Late
from app.settings.model_files import SERVICE_FILE

# Bodies up to this size are not counted: the number of connections bounds them.
SMALL_BODY_BYTES = 64 << 10

_T = TypeVar("_T")

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class LoopExchange(Exchange):
    """One request, which occupies no thread while it waits.

    Call `close` at its end.
    """

    __slots__ = ("_held_bytes", "_is_closed", "_is_gone", "_loop", "_most_bytes")

    def __init__(self, environ: Environ, loop: EventLoop) -> None:
        """Store the WSGI environment, and the waits of the event loop."""
        super().__init__(environ)
        self.wake = loop.wake
        self._loop = loop
        # Bytes that are counted as a large request's, now and at most so far.
        self._held_bytes = self._most_bytes = 0
        self._is_closed = False
        self._is_gone = False

    def close(self) -> None:
        """End the request: its memory is released, its metrics are written."""
        self._is_closed = True
        if self._most_bytes:
            with self._loop.holding:
                self._loop.hold(-self._held_bytes)
                self._held_bytes = 0
            self._loop.trim_memory(self._most_bytes)
        self._loop.flush_metrics()

    def hold(self, count: int) -> None:
        """Count the bytes of a large request; see Exchange."""
        if count <= SMALL_BODY_BYTES:
            count = 0
        if count == self._held_bytes:
            return
        # Before it looks whether the request has ended; `close` does both in turn.
        self._most_bytes = max(self._most_bytes, count)
        with self._loop.holding:
            # Code of the user's may return after the request's end.
            if not self._is_closed:
                self._loop.hold(count - self._held_bytes)
                self._held_bytes = count

    async def offload(
        self, function: Callable[[], _T], threads: Threads | None = None
    ) -> _T:
        """Call a function in a thread, as it would block the event loop.

        A disconnect of the client is noticed meanwhile, before its rows have run.
        """
        watch = self.disconnected() if self.job is None else None
        try:
            if threads is None:
                return await self._loop.run_in_thread(function)
            return await self._loop.by(self.deadline, run_in(threads, function))
        except TimeoutError:
            raise Late(f"{SERVICE_FILE} did not return by the deadline") from None
        finally:
            if watch is not None:
                watch.cancel()

    async def around(
        self,
        threads: Threads,
        before: Callable[[Wake | None], Job | None],
        after: Callable[[Job], _T],
    ) -> _T | None:
        """Call `before` and `after` in threads; see Exchange.

        A disconnect of the client is noticed meanwhile.
        """
        watch = self.disconnected()
        try:
            return await self._loop.by(
                self.deadline, run_around(threads, before, after)
            )
        except TimeoutError:
            raise self._late() from None
        except asyncio.CancelledError:
            self.client_gone()
            raise
        finally:
            watch.cancel()

    def _late(self) -> Late:
        if self.job is None or self.job.is_answered():
            return Late(f"{SERVICE_FILE} did not return by the deadline")
        text = "no answer was ready before the request's deadline"
        # Two errors: the one that is raised has this request in its traceback.
        self.job.fail(Late(text))
        return Late(text)

    async def answered(self, job: Job) -> None:
        """Wait until the job is answered, or fail it at its deadline."""
        try:
            await self._loop.answered(job, self.disconnected)
        except BaseException:
            # Cancelled: its rows need not run any more.
            self.client_gone()
            raise

    def is_gone(self) -> bool:
        """Return whether the client disconnected."""
        return self._is_gone

    def client_gone(self) -> None:
        """Note that the client disconnected: its rows need not run any more."""
        self._is_gone = True
        for job in self.jobs:
            job.abandon()

    def disconnected(self) -> "asyncio.Future[Any]":
        """Return a future of the client's disconnect, which `is_gone` then reports."""
        raise NotImplementedError


class AsgiExchange(LoopExchange):
    """One request over HTTP."""

    __slots__ = ("_http_version", "_receive")

    def __init__(self, scope: Scope, receive: Receive, loop: EventLoop) -> None:
        """Store the ASGI scope, `receive`, and the waits of the event loop."""
        super().__init__(environ_of(scope), loop)
        self._http_version = scope["http_version"]
        self._receive = receive

    def has_body(self) -> bool:
        """Return whether a body may follow the head."""
        length: str | None = self.environ.get("CONTENT_LENGTH")
        if length is not None:
            return length != "0"
        is_chunked = "HTTP_TRANSFER_ENCODING" in self.environ
        return is_chunked or self._http_version not in ("1.0", "1.1")

    async def body(self, limit_bytes: int) -> bytes:
        """Return the body as it was sent; beyond the limit it is not read.

        Raises:
            TooLarge: it exceeds the limit.
            BadInput: it is cut off, or malformed HTTP.
            TooSlow: it did not arrive in time.
            Unavailable: large bodies of other requests take too much memory.
        """
        if not self.has_body():
            return b""
        # int() takes at most 4300 digits; servers bound the number, but not its zeros.
        if int(self.environ.get("CONTENT_LENGTH", "").lstrip("0") or 0) > limit_bytes:
            raise too_large(limit_bytes)
        until = self.arrived_at + self._loop.request_timeout_s
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            receiving = self._event()
            try:
                if not receiving.done():
                    await self._loop.by(until, receiving)
                event = receiving.result()
            except TimeoutError:
                raise too_slow() from None
            if event["type"] == "http.disconnect":
                raise unreadable("it is cut off")
            part = event.get("body", b"")
            more = event.get("more_body", False)
            size += len(part)
            if size > limit_bytes:
                raise too_large(limit_bytes)
            if size > SMALL_BODY_BYTES:
                self.hold(size)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def disconnected(self) -> "asyncio.Future[Any]":
        """Return a future of the disconnect, the only event after the body."""
        receiving = self._event()
        receiving.add_done_callback(self._note)
        return receiving

    def _note(self, receiving: "asyncio.Future[Any]") -> None:
        if receiving.cancelled():
            return
        # The first event of a request without a body is its empty body.
        if receiving.exception() or receiving.result()["type"] == "http.disconnect":
            self.client_gone()

    def _event(self) -> "asyncio.Future[Any]":
        """Return a future of the server's next event; most servers give a coroutine."""
        return asyncio.ensure_future(self._receive())


def environ_of(scope: Scope) -> Environ:
    """Return the part of a WSGI environment that inference requests need."""
    root, path = scope.get("root_path", ""), scope["path"]
    if root and f"{path}/".startswith(f"{root}/"):
        path = path[len(root) :] or "/"
    client = scope.get("client")
    raw_path = scope.get("raw_path") or _quoted(scope["path"])
    environ: Environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": root,
        "PATH_INFO": path if path.isascii() else _in_latin_1(path),
        "RAW_URI": raw_path.decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "REMOTE_ADDR": client[0] if client else "",
    }
    for name, value in scope["headers"]:
        place = _variable(name)
        text = value.decode("latin-1")
        environ[place] = f"{environ[place]},{text}" if place in environ else text
    environ.pop("", None)
    return environ


def _quoted(path: str) -> bytes:
    """Return a path as a client may have sent it, for servers without `raw_path`."""
    return quote(path.encode(errors="surrogateescape"), safe="/:").encode()


def _in_latin_1(path: str) -> str:
    """Return a path as in WSGI: each byte as a character."""
    return path.encode(errors="surrogateescape").decode("latin-1")


@lru_cache(maxsize=1024)
def _variable(name: bytes) -> str:
    """Return the WSGI variable of a header, or "" if it could pass for another one."""
    return "" if b"_" in name else variable(name.decode("latin-1"))
