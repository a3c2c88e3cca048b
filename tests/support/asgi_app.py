"""ASGI applications for tests of the event-loop worker.

`app` has a route for each behavior: `gunicorn tests.support.asgi_app:app`. Parameters
are in the query. `name` is any name that a test gives a request.
"""

import asyncio
import contextlib
import gc
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import parse_qsl

Headers = Iterable[tuple[bytes, bytes]]
_PIECE = 64 << 10


class Disconnected(Exception):
    """The client disconnected before its request was complete."""


class Exchange:
    """One request, and the means to answer it."""

    def __init__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope = scope
        self.receive = receive
        self._send = send
        self.query = dict(parse_qsl(scope["query_string"].decode()))
        self.name = self.query.get("name", "")

    def number(self, name: str, default: float = 0) -> int:
        return int(self.query.get(name, default))

    def seconds(self) -> float:
        return float(self.query.get("s", 0))

    async def body(self) -> bytes:
        """Return the whole body.

        Raises:
            Disconnected: the body does not end as announced.
        """
        parts = []
        while True:
            event = await self.receive()
            if event["type"] == "http.disconnect":
                raise Disconnected
            parts.append(event.get("body", b""))
            if not event.get("more_body", False):
                return b"".join(parts)

    async def start(self, status: int = 200, headers: Headers = ()) -> None:
        await self._send(
            {"type": "http.response.start", "status": status, "headers": list(headers)}
        )

    async def part(self, body: bytes = b"", *, more: bool = False) -> None:
        await self._send(
            {"type": "http.response.body", "body": body, "more_body": more}
        )

    async def answer(
        self, body: bytes = b"", status: int = 200, headers: Headers = ()
    ) -> None:
        length = (b"content-length", str(len(body)).encode())
        await self.start(status, [length, *headers])
        await self.part(body)

    async def answer_json(
        self, found: Any, status: int = 200, headers: Headers = ()
    ) -> None:
        kind = (b"content-type", b"application/json")
        await self.answer(json.dumps(found).encode(), status, [kind, *headers])


class App:
    """The application; all it remembers can be asked for."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()
        self._disconnects: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._sent_pieces: Counter[str] = Counter()
        self._events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._stopping = asyncio.Event()
        self._sequence = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        path = scope["path"]
        self._calls[path] += 1
        exchange = Exchange(scope, receive, send)
        route = _ROUTES.get("/" + path[1:].partition("/")[0], App.not_found)
        try:
            await route(self, exchange)
        except Disconnected:
            with contextlib.suppress(OSError):
                await exchange.answer_json({"error": "the body is cut off"}, 400)

    async def _lifespan(self, receive: Any, send: Any) -> None:
        """Log the lifespan; at the shutdown answer pending requests with 503."""
        while True:
            kind = (await receive())["type"]
            print(kind, file=sys.stderr, flush=True)
            if kind == "lifespan.shutdown":
                self._stopping.set()
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return

    async def _unless_stopping(
        self, exchange: Exchange, wait: Awaitable[Any], timeout_s: float | None = None
    ) -> Any:
        """Return the future of a wait; None: it ended in a 503 or, late, in a 408."""
        waiting = asyncio.ensure_future(wait)
        stopping = asyncio.ensure_future(self._stopping.wait())
        self._waiting[exchange.name] += 1
        try:
            await asyncio.wait(
                {waiting, stopping},
                timeout=timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            self._waiting[exchange.name] -= 1
            stopping.cancel()
        if waiting.done():
            return waiting
        waiting.cancel()
        if self._stopping.is_set():
            await exchange.answer_json({"error": "the server is stopping"}, 503)
        else:
            late = {"error": "the body has not come in time"}
            await exchange.answer_json(late, 408, [(b"connection", b"close")])
        return None

    async def echo(self, exchange: Exchange) -> None:
        """Answer with the body."""
        await exchange.answer(await exchange.body())

    async def read(self, exchange: Exchange) -> None:
        """Answer with the body's length, or 408 after `s` seconds."""
        timeout_s = exchange.seconds() or None
        read = await self._unless_stopping(exchange, exchange.body(), timeout_s)
        if read is not None:
            await exchange.answer_json(len(read.result()))

    async def show(self, exchange: Exchange) -> None:
        """Answer with the scope."""
        scope = exchange.scope
        shown = {
            name: value.decode("latin-1") if isinstance(value, bytes) else value
            for name, value in scope.items()
            if name not in ("headers", "state", "extensions")
        }
        shown["headers"] = [
            [name.decode("latin-1"), value.decode("latin-1")]
            for name, value in scope["headers"]
        ]
        await exchange.answer_json(shown)

    async def sleep(self, exchange: Exchange) -> None:
        """Answer after `s` seconds, or with 503 when the server stops before."""
        if await self._unless_stopping(exchange, asyncio.sleep(exchange.seconds())):
            await exchange.answer(b"slept")

    async def hold(self, exchange: Exchange) -> None:
        """Answer when /release is asked for the same name."""
        wait = self._events[exchange.name].wait()
        if await self._unless_stopping(exchange, wait):
            await exchange.answer(exchange.name.encode())

    async def release(self, exchange: Exchange) -> None:
        self._events[exchange.name].set()
        await exchange.answer()

    async def waits(self, exchange: Exchange) -> None:
        """Answer how many requests of the name wait."""
        await exchange.answer_json(self._waiting[exchange.name])

    async def sleep_through_shutdown(self, exchange: Exchange) -> None:
        """Wait for `s` seconds, also during the shutdown, and answer."""
        self._waiting[exchange.name] += 1
        await asyncio.sleep(exchange.seconds())
        await exchange.answer(b"slept")

    async def send_bytes(self, exchange: Exchange) -> None:
        """Answer with so many `bytes`."""
        await exchange.answer(bytes(exchange.number("bytes")))

    async def stream(self, exchange: Exchange) -> None:
        """Answer with `pieces` of `size` bytes, all but the first when released."""
        pieces = exchange.number("pieces")
        size = exchange.number("size", _PIECE)
        await exchange.start()
        for place in range(pieces):
            await exchange.part(b"%x" % (place % 16) * size, more=True)
            self._sent_pieces[exchange.name] += 1
            if "until" in exchange.query and not place:
                await self._events[exchange.query["until"]].wait()
        await exchange.part()

    async def sent_pieces(self, exchange: Exchange) -> None:
        """Answer how many pieces of the name's stream have been sent."""
        await exchange.answer_json(self._sent_pieces[exchange.name])

    async def status(self, exchange: Exchange) -> None:
        """Answer with a `code` and nothing else."""
        await exchange.start(exchange.number("code"))
        await exchange.part()

    async def refuse(self, exchange: Exchange) -> None:
        """Answer without reading the body."""
        await exchange.answer_json({"error": "no"}, exchange.number("code", 401))

    async def calls(self, exchange: Exchange) -> None:
        """Answer with the calls of each path."""
        await exchange.answer_json(self._calls)

    async def next_number(self, exchange: Exchange) -> None:
        """Answer with the next number."""
        self._sequence += 1
        await exchange.answer_json(self._sequence)

    async def watch(self, exchange: Exchange) -> None:
        """Wait until the client disconnects, or the name is released."""
        released = asyncio.ensure_future(self._events[exchange.name].wait())
        self._waiting[exchange.name] += 1
        while not released.done():
            event = asyncio.ensure_future(exchange.receive())
            await asyncio.wait({event, released}, return_when="FIRST_COMPLETED")
            if not event.done():
                event.cancel()
            elif event.result()["type"] == "http.disconnect":
                self._disconnects[exchange.name] += 1
                released.cancel()
                break
        self._waiting[exchange.name] -= 1
        with contextlib.suppress(OSError):
            await exchange.answer(b"watched")

    async def disconnects(self, exchange: Exchange) -> None:
        """Answer how many disconnects of the name were seen."""
        await exchange.answer_json(self._disconnects[exchange.name])

    async def fail(self, exchange: Exchange) -> None:
        """Raise an error, `after` nothing, the headers or a part of the body."""
        after = exchange.query.get("after")
        if after:
            await exchange.start()
        if after == "part":
            await exchange.part(b"part", more=True)
        raise KeyError("/secret/path")

    async def silent(self, exchange: Exchange) -> None:
        """Return without an answer."""

    async def length(self, exchange: Exchange) -> None:
        """Announce 10 bytes, and send so many `bytes`."""
        await exchange.start(200, [(b"content-length", b"10")])
        await exchange.part(b"x" * exchange.number("bytes"))

    async def headers(self, exchange: Exchange) -> None:
        """Answer with the header that stands in the body, as `name:value`."""
        name, _, value = (await exchange.body()).partition(b":")
        await exchange.answer(b"", headers=[(name, value)] * exchange.number("n", 1))

    async def block(self, exchange: Exchange) -> None:
        """Send a part of the answer, and block the event loop for `s` seconds."""
        await exchange.start()
        await exchange.part(b"blocking", more=True)
        await asyncio.sleep(0.02)
        time.sleep(exchange.seconds())
        await exchange.part(b", done")

    async def block_at_once(self, exchange: Exchange) -> None:
        """Block the event loop for `s` seconds, and answer."""
        time.sleep(exchange.seconds())
        await exchange.answer(b"blocked")

    async def collect(self, exchange: Exchange) -> None:
        """Turn the collector off; answer with the types of what it found since then.

        What it saves it would find again, such as what the start left.
        """
        if gc.isenabled():
            gc.disable()
            gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        types = Counter(type(each).__name__ for each in gc.garbage)
        gc.garbage.clear()
        await exchange.answer_json(types)

    async def not_found(self, exchange: Exchange) -> None:
        await exchange.answer_json({"error": "not found"}, 404)


_ROUTES: dict[str, Callable[[App, Exchange], Awaitable[None]]] = {
    "/block": App.block,
    "/block-at-once": App.block_at_once,
    "/bytes": App.send_bytes,
    "/calls": App.calls,
    "/collect": App.collect,
    "/deaf": App.sleep_through_shutdown,
    "/disconnects": App.disconnects,
    "/echo": App.echo,
    "/fail": App.fail,
    "/headers": App.headers,
    "/hold": App.hold,
    "/length": App.length,
    "/next": App.next_number,
    "/read": App.read,
    "/refuse": App.refuse,
    "/release": App.release,
    "/sent": App.sent_pieces,
    "/show": App.show,
    "/silent": App.silent,
    "/sleep": App.sleep,
    "/status": App.status,
    "/stream": App.stream,
    "/waits": App.waits,
    "/watch": App.watch,
}

app = App()


async def without_lifespan(scope: Any, receive: Any, send: Any) -> None:
    """Serve HTTP, and raise at any other protocol."""
    if scope["type"] != "http":
        raise ValueError(f"unknown scope {scope['type']}")
    await app(scope, receive, send)


async def failing_startup(scope: Any, receive: Any, send: Any) -> None:
    """Tell the server that the start failed."""
    del scope
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "no database"})


class WithAttribute:
    """A WSGI application that has an ASGI application as an attribute."""

    asgi = app

    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        del environ
        start_response("200 OK", [])
        return [b"this is WSGI"]


with_attribute = WithAttribute()
