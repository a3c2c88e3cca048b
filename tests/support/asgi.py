"""ASGI applications called without a server, with timers that fire by hand."""

import asyncio
import contextlib
import functools
import gc
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import app.call
from app.batching.job import Job
from testing.server import wait_until

_FREED_WITHIN_S = 10


class HandLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers fire when the test says so.

    `timers` are those that are set; `woken` has the arguments of each wake-up by
    another thread, and `offloaded` the functions that were called in its own threads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[SimpleNamespace] = []
        self.woken: list[tuple[Any, ...]] = []
        self.offloaded: list[Any] = []

    def call_later(self, delay: float, callback: Any, *args: Any, **_: Any) -> Any:
        timer = SimpleNamespace(delay_s=delay, callback=callback, args=args)
        timer.cancel = lambda: timer in self.timers and self.timers.remove(timer)
        self.timers.append(timer)
        return timer

    def call_soon_threadsafe(self, callback: Any, *args: Any, **rest: Any) -> Any:
        self.woken.append(args)
        return super().call_soon_threadsafe(callback, *args, **rest)

    def run_in_executor(self, executor: Any, function: Any, *args: Any) -> Any:
        if executor is None:
            self.offloaded.append(function)
        return super().run_in_executor(executor, function, *args)

    def fire(self) -> None:
        """Call all timers that are set now."""
        timers, self.timers = self.timers, []
        for timer in timers:
            timer.callback(*timer.args)


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test as a coroutine on a HandLoop."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=HandLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


async def settle() -> None:
    """Let everything on the loop go as far as it goes."""
    for _ in range(10):
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def freed_without_a_collection() -> AsyncIterator[None]:
    """Check that the calls of the block are freed, with no garbage collection in it.

    A thread drops its call a moment after the reply.
    """
    gc.collect()
    gc.disable()
    before = _parts_of_calls()
    try:
        yield
        # The loop keeps what it is woken with.
        asyncio.get_running_loop().woken.clear()  # type: ignore[attr-defined]
        await asyncio.to_thread(
            wait_until,
            lambda: not _parts_of_calls(before),
            _FREED_WITHIN_S,
            lambda: str(_parts_of_calls(before)),
        )
    finally:
        gc.enable()


def _parts_of_calls(but: Sequence[Any] = ()) -> list[Any]:
    """Return all calls in memory, their jobs and replies, but for those of before."""
    kinds = (app.call.Call, app.call.Reply, Job)
    known = set(map(id, but))
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, kinds) and id(each) not in known
    ]


class Call:
    """One request to an ASGI application, whose body has these parts.

    Behind them comes the disconnect, when the test says so. `reads` counts the calls
    of `receive`, and `pending` those that wait. `sent` has all events of the response.
    With `futures` the server's `receive` returns futures, which may be done already.
    """

    def __init__(
        self, app: Any, *parts: bytes, ends: bool = True, futures: bool = False
    ) -> None:
        self._app = app
        self._parts = list(parts or [b""])
        self._ends = ends
        self._futures = futures
        self._disconnected = asyncio.Event()
        self.reads = self.pending = 0
        self.sent: list[dict[str, Any]] = []

    def begin(
        self, path: str = "/predict", method: str = "POST", **others: Any
    ) -> "asyncio.Task[Call]":
        """Have the application serve a request with a scope of these values."""
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.5"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "query_string": b"",
            "root_path": "",
            "headers": [],
            "client": ("10.0.0.7", 51234),
            "server": ("127.0.0.1", 8000),
        }
        return asyncio.get_running_loop().create_task(self._serve(scope | others))

    def disconnect(self) -> None:
        self._disconnected.set()

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[str, str]:
        """The response's headers, each of which is there once."""
        pairs = [(k.decode(), v.decode()) for k, v in self.sent[0]["headers"]]
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    @property
    def body(self) -> bytes:
        return b"".join(event.get("body", b"") for event in self.sent[1:])

    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)

    async def _serve(self, scope: dict[str, Any]) -> "Call":
        receive = self._receive_future if self._futures else self._receive
        await self._app(scope, receive, self._send)
        return self

    async def _send(self, event: dict[str, Any]) -> None:
        self.sent.append(event)

    def _receive_future(self) -> "asyncio.Future[dict[str, Any]]":
        if not self._parts:
            return asyncio.ensure_future(self._receive())
        self.reads += 1
        future = asyncio.get_running_loop().create_future()
        future.set_result(self._part())
        return future

    async def _receive(self) -> dict[str, Any]:
        self.reads += 1
        if self._parts:
            return self._part()
        self.pending += 1
        try:
            await self._disconnected.wait()
        finally:
            self.pending -= 1
        return {"type": "http.disconnect"}

    def _part(self) -> dict[str, Any]:
        body = self._parts.pop(0)
        more = bool(self._parts) or not self._ends
        return {"type": "http.request", "body": body, "more_body": more}
