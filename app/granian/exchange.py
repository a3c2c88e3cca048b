"""An inference request that is answered on Granian's event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from app.api.body import too_large, too_slow, unreadable
from app.api.shared_thread import SharedThreadExchange
from app.granian.environ import environ_of
from app.granian.loop import Loop
from app.granian.patience import Undo
from app.granian.spec import Connection, Scope
from app.serving.job import Answer, Job

_T = TypeVar("_T")


class LoopExchange(SharedThreadExchange):
    """One request, which holds no thread while it waits."""

    __slots__ = ("_connection", "_ends", "_loop", "scope")

    def __init__(
        self, scope: Scope, connection: Connection, loop: Loop, prefix: str
    ) -> None:
        """Store what Granian gives; `prefix` is the path that this is mounted on."""
        super().__init__(environ_of(scope, prefix), loop.wake)
        self.scope = scope
        self._connection = connection
        self._loop = loop
        # Not empty once the client has hung up.
        self._ends: list[None] = []

    async def body(self, limit_bytes: int) -> bytes:
        """As it was sent; what is beyond the limit is not read."""
        length = self.environ.get("CONTENT_LENGTH")
        if length is None:
            if self.has_body():
                return await self._chunks(limit_bytes)
            return b""
        if int(length) > limit_bytes:
            raise too_large(limit_bytes)
        return await self._in_time(self._connection())

    def has_body(self) -> bool:
        """Say whether anything may follow the header."""
        length: str | None = self.environ.get("CONTENT_LENGTH")
        if length is not None:
            return length != "0"
        in_chunks = "HTTP_TRANSFER_ENCODING" in self.environ
        return in_chunks or self.scope.http_version == "2"

    async def answered(self, job: Job) -> Answer:
        """The answer, or what `job.wait` raises."""
        await self._loop.told(job, partial(self._waits_long, job))
        return job.wait()

    def aside(self, function: Callable[[], _T], *, computes: bool) -> Awaitable[_T]:
        """Call a function in one of the threads for its kind."""
        call = self._loop.compute if computes else self._loop.block
        return call(function)

    def is_gone(self) -> Callable[[], bool]:
        """A check that says whether the client has hung up."""
        # Not with this exchange in it: its job is in here, and would be in a circle.
        return partial(bool, self._ends)

    async def _chunks(self, limit_bytes: int) -> bytes:
        """A body of unknown length."""
        parts: list[bytes] = []
        size, empty_parts = 0, 0
        # One for the end, and for HTTP/2 the last frame or the trailers before it; an
        # error is one more.
        allowed = 2 if self.scope.http_version == "2" else 1
        stream = self._connection.__aiter__()
        while True:
            try:
                part = await self._in_time(stream.__anext__())
            except StopAsyncIteration:
                return b"".join(parts)
            empty_parts = 0 if part else empty_parts + 1
            if empty_parts > allowed:
                raise unreadable("it is cut off, or is not in chunks")
            size += len(part)
            if size > limit_bytes:
                raise too_large(limit_bytes)
            parts.append(part)

    async def _in_time(self, receiving: Any) -> bytes:
        """What comes of the body, unless it takes longer than a request may."""
        until = self.arrived_at + self._loop.request_timeout_s
        patience, is_late = self._loop.patience, False

        def give_up() -> None:
            nonlocal is_late
            is_late = True
            receiving.cancel()

        try:
            part: bytes = await patience.wait(
                receiving, until, lambda: patience.at(until, give_up)
            )
        except asyncio.CancelledError:
            if not is_late:
                raise
            raise too_slow() from None
        except RuntimeError:  # RSGIProtocolClosed
            raise unreadable("it is cut off") from None
        return part

    def _waits_long(self, job: Job, told: "asyncio.Future[None]") -> Undo:
        """End the wait at the job's deadline, and note meanwhile if the client goes."""
        on_time = self._loop.patience.at(job.deadline, partial(_end, told))
        watch = asyncio.ensure_future(self._connection.client_disconnect())
        watch.add_done_callback(self._note)

        def undo() -> None:
            on_time()
            watch.cancel()

        return undo

    def _note(self, watch: "asyncio.Future[None]") -> None:
        if not watch.cancelled():
            self._ends.append(None)


def _end(told: "asyncio.Future[None]") -> None:
    if not told.done():
        told.set_result(None)
