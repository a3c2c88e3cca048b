"""An inference request on an event loop, as ASGI has it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache, partial
from typing import Any, ParamSpec, TypeVar
from urllib.parse import quote

from app.api.body import too_large, too_slow, unreadable
from app.api.environ import Environ, variable
from app.api.event_loop import EventLoop
from app.api.exchange import Exchange
from app.batching.job import Answer, Job
from app.batching.runner import Runner

# Bodies up to this size are not counted: there are no more of them than connections.
_SMALL_BODY_BYTES = 64 << 10

_P = ParamSpec("_P")
_T = TypeVar("_T")

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class AsgiExchange(Exchange):
    """One request, which occupies no thread while it waits."""

    __slots__ = ("_disconnects", "_held_bytes", "_http_version", "_loop", "_receive")

    def __init__(self, scope: Scope, receive: Receive, loop: EventLoop) -> None:
        """Store what the server gives, and note when the request arrives."""
        super().__init__(environ_of(scope))
        self.wake = loop.wake
        self._http_version = scope["http_version"]
        self._receive = receive
        self._loop = loop
        # What the body takes of the memory for large ones.
        self._held_bytes = 0
        # Not empty once the client is gone.
        self._disconnects: list[None] = []

    def has_body(self) -> bool:
        """Return whether anything may follow the head."""
        length: str | None = self.environ.get("CONTENT_LENGTH")
        if length is not None:
            return length != "0"
        is_chunked = "HTTP_TRANSFER_ENCODING" in self.environ
        return is_chunked or self._http_version not in ("1.0", "1.1")

    async def body(self, limit_bytes: int) -> bytes:
        """Return the body as it was sent; beyond the limit it is not read.

        Raises:
            TooLarge: more than the limit.
            BadInput: cut off, or not as HTTP has it.
            TooSlow: it has not come in time.
            Unavailable: others' large bodies take too much memory.
        """
        if not self.has_body():
            return b""
        if int(self.environ.get("CONTENT_LENGTH", 0)) > limit_bytes:
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
            if size > _SMALL_BODY_BYTES:
                self._loop.hold(size - self._held_bytes)
                self._held_bytes = size
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def release(self) -> None:
        """At the end of the request: its body is no longer in memory."""
        self._loop.hold(-self._held_bytes)
        self._held_bytes = 0

    async def work(
        self,
        quick: bool,
        function: Callable[_P, _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Call what is quick on the event loop, and all else in a thread."""
        if quick:
            return function(*args, **kwargs)
        return await self._loop.run_in_thread(partial(function, *args, **kwargs))

    async def submit(self, runner: Runner, job: Job) -> None:
        """Submit a job, in a thread if its model runs there."""
        if runner.runs_in_submit:
            await self._loop.run_in_thread(partial(runner.submit, job))
        else:
            runner.submit(job)
            self._loop.flush_metrics()

    async def answered(self, job: Job) -> Answer:
        """Return the answer, or raise what `job.wait` raises."""
        try:
            await self._loop.answered(job, self._disconnected)
        except BaseException:
            # Cancelled: nobody reads the answer any more.
            self._disconnects.append(None)
            raise
        return job.wait()

    def is_gone(self) -> Callable[[], bool]:
        """Return a check that says whether the client is gone."""
        # Not with this exchange in it, which has the job: that would be a cycle.
        return partial(bool, self._disconnects)

    def _disconnected(self) -> "asyncio.Future[Any]":
        """Listen for the end of the connection: all that may come behind the body."""
        receiving = self._event()
        receiving.add_done_callback(partial(_note, self._disconnects))
        return receiving

    def _event(self) -> "asyncio.Future[Any]":
        """Return a future of the server's next event; some servers give none."""
        receiving = self._receive()
        if isinstance(receiving, asyncio.Future):
            return receiving
        return asyncio.ensure_future(receiving)


def _note(disconnects: list[None], receiving: "asyncio.Future[Any]") -> None:
    if not receiving.cancelled():
        disconnects.append(None)


def environ_of(scope: Scope) -> Environ:
    """Return as much of WSGI's environment as is asked for when a request predicts."""
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
    """Return a path as a client may have sent it, for a server that does not say."""
    return quote(path.encode(errors="surrogateescape"), safe="/:").encode()


def _in_latin_1(path: str) -> str:
    """Return a path as WSGI has it: its bytes, each as a character."""
    return path.encode(errors="surrogateescape").decode("latin-1")


@lru_cache(maxsize=1024)
def _variable(name: bytes) -> str:
    """Return where WSGI puts a header; empty for one that could pass for another."""
    return "" if b"_" in name else variable(name.decode("latin-1"))
