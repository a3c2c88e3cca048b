"""An application of calls without models, for tests of the event-loop worker.

`app` has a route for each behavior: `gunicorn tests.support.calls_app:app`. Parameters
are in the query. `name` is any name that a test gives a request.
"""

import asyncio
import gc
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from app.call import JSON, Call, Reply
from app.errors import BasketError, Stopping, TooLarge, TooSlow

_PLAIN = "text/plain"


def as_json(found: Any, status: int = 200, lines: str = "") -> Reply:
    return Reply(json.dumps(found).encode(), JSON, status, lines)


class CallsApp:
    """The application; all it remembers can be asked for."""

    grpc = None

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._disconnects: Counter[str] = Counter()
        # Calls without a reply, by the name of their request, and the reply that they
        # wait for.
        self._waiting: defaultdict[str, dict[Call, Reply]] = defaultdict(dict)
        self._sequence = 0

    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        """Answer as a WSGI application, which Gunicorn wants one to be."""
        del environ
        start_response("200 OK", [])
        return [b"this is WSGI"]

    # What the worker asks for.

    def loop_calls(self) -> "CallsApp":
        print("loop_calls", file=sys.stderr, flush=True)
        self._loop = asyncio.get_running_loop()
        return self

    async def close_calls(self) -> None:
        """Answer all calls that wait with 503, but those that wait for that."""
        print("close_calls", file=sys.stderr, flush=True)
        for name, calls in self._waiting.items():
            for call in [*calls] if name != "deaf" else ():
                self._end(name, call, _refusal(Stopping("the server is stopping")))

    # What connections ask for.

    def check(self, call: Call, body_bytes: int) -> bool:
        """Refuse a body that nobody reads or that is too large; time those to read."""
        query = _query(call)
        route = _route(call)
        name = query.get("name", "")
        limit = query.get("limit")
        if route == "/refuse":
            self._count(call)
            _answer(call, self.refused(call, query))
        elif limit is not None and body_bytes > int(limit):
            self.refuse(call, TooLarge("the body is too large"))
        else:
            self._waiting[name][call] = Reply(b"")
            if query.get("s") and route == "/read":
                late = TooSlow("the body has not come in time")
                self._loop.call_later(float(query["s"]), self._give_up, call, late)
            return True
        return False

    def reads(self, call: Call, body_bytes: int) -> bool:
        """Refuse a body beyond `limit` or `read_limit`."""
        query = _query(call)
        limit = query.get("read_limit") or query.get("limit")
        if limit is not None and body_bytes > int(limit):
            self.refuse(call, TooLarge("the body is too large"))
            return False
        return True

    def start(self, call: Call) -> None:
        self._waiting[_query(call).get("name", "")].pop(call, None)
        self._count(call)
        route = _ROUTES.get(_route(call), CallsApp.not_found)
        reply = route(self, call, _query(call))
        if reply is not None:
            _answer(call, reply)

    def refuse(self, call: Call, error: Exception) -> None:
        self._waiting[_query(call).get("name", "")].pop(call, None)
        assert isinstance(error, BasketError)
        _answer(call, _refusal(error))

    def left(self, call: Call) -> None:
        """Note the disconnect; the calls of /watch end with it."""
        name = _query(call).get("name", "")
        call.is_gone = True
        if _route(call) == "/watch":
            self._disconnects[name] += 1
            self._end(name, call)

    def _count(self, call: Call) -> None:
        self._counts[call.head.path] += 1

    def _give_up(self, call: Call, error: BasketError) -> None:
        if call in self._waiting[_query(call).get("name", "")]:
            self.refuse(call, error)

    def _wait(self, name: str, call: Call, reply: Reply) -> None:
        self._waiting[name][call] = reply

    def _end(self, name: str, call: Call, other: Reply | None = None) -> None:
        reply = self._waiting[name].pop(call, None)
        if reply is not None:
            _answer(call, other or reply)

    # Routes; without a reply the call waits.

    def echo(self, call: Call, _: dict[str, str]) -> Reply:
        """Answer with the body."""
        return Reply(call.body, _PLAIN)

    def usual(self, call: Call, _: dict[str, str]) -> Reply:
        """Answer with the body as JSON, as nearly all requests are."""
        return Reply(call.body)

    def read(self, call: Call, _: dict[str, str]) -> Reply:
        """Answer with the body's length."""
        return as_json(len(call.body))

    def show(self, call: Call, _: dict[str, str]) -> Reply:
        """Answer with the head and the peer."""
        head = call.head
        shown = {
            "method": head.method,
            "path": head.path,
            "raw_path": head.raw_path,
            "query": head.query,
            "version": head.version,
            "request_id": head.request_id,
            "headers": dict(head.headers),
            **call.peer._asdict(),
        }
        return as_json(shown)

    def sleep(self, call: Call, query: dict[str, str]) -> None:
        """Answer after `s` seconds, or with 503 when the server stops before."""
        name = query.get("name", "")
        self._wait(name, call, Reply(b"slept", _PLAIN))
        self._loop.call_later(float(query["s"]), self._end, name, call)

    def hold(self, call: Call, query: dict[str, str]) -> None:
        """Answer when /release is asked for the same name."""
        self._wait(query["name"], call, Reply(query["name"].encode(), _PLAIN))

    def release(self, _: Call, query: dict[str, str]) -> Reply:
        for call in [*self._waiting[query["name"]]]:
            self._end(query["name"], call)
        return Reply(b"", _PLAIN)

    def waits(self, _: Call, query: dict[str, str]) -> Reply:
        """Answer how many requests of the name wait, or send their body."""
        return as_json(len(self._waiting[query["name"]]))

    def send_bytes(self, _: Call, query: dict[str, str]) -> Reply:
        """Answer with so many `bytes`."""
        return Reply(bytes(int(query["bytes"])), _PLAIN)

    def hold_bytes(self, call: Call, query: dict[str, str]) -> None:
        """Answer with so many `bytes` when the name is released."""
        self._wait(query["name"], call, Reply(bytes(int(query["bytes"])), _PLAIN))

    def status(self, _: Call, query: dict[str, str]) -> Reply:
        """Answer with a `code` and nothing else."""
        return Reply(b"", "", int(query["code"]))

    def refused(self, _: Call, query: dict[str, str]) -> Reply:
        """Answer without reading the body, with so many spaces as `bytes`."""
        reply = as_json({"error": "no"}, int(query.get("code", 401)))
        reply.body += b" " * int(query.get("bytes", 0))
        return reply

    def counts(self, _: Call, __: dict[str, str]) -> Reply:
        """Answer with the calls of each path."""
        return as_json(self._counts)

    def next_number(self, _: Call, __: dict[str, str]) -> Reply:
        """Answer with the next number."""
        self._sequence += 1
        return as_json(self._sequence)

    def watch(self, call: Call, query: dict[str, str]) -> None:
        """Wait until the client disconnects, or the name is released."""
        self._wait(query["name"], call, Reply(b"watched", _PLAIN))

    def disconnects(self, _: Call, query: dict[str, str]) -> Reply:
        """Answer how many disconnects of the name were seen."""
        return as_json(self._disconnects[query["name"]])

    def fail(self, _: Call, __: dict[str, str]) -> Reply:
        """Raise an error."""
        raise KeyError("/secret/path")

    def lines(self, call: Call, query: dict[str, str]) -> Reply:
        """Answer with the header lines that stand in the body, and a `code`."""
        lines = call.body.decode("latin-1")
        return as_json("body", int(query.get("code", 200)), lines)

    def block(self, _: Call, query: dict[str, str]) -> Reply:
        """Say so in the log, block the event loop for `s` seconds, and answer."""
        print("blocking", query.get("name", ""), file=sys.stderr, flush=True)
        time.sleep(float(query["s"]))
        return Reply(b"blocked", _PLAIN)

    def collect(self, _: Call, __: dict[str, str]) -> Reply:
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
        return as_json(types)

    def not_found(self, _: Call, __: dict[str, str]) -> Reply:
        return as_json({"error": "not found"}, 404)


def _answer(call: Call, reply: Reply) -> None:
    assert call.reply_to is not None
    call.reply_to(call, reply)


def _refusal(error: BasketError) -> Reply:
    lines = "Connection: close\r\n" if isinstance(error, TooSlow) else ""
    return as_json({"error": str(error)}, error.status, lines)


def _query(call: Call) -> dict[str, str]:
    return dict(parse_qsl(call.head.query, keep_blank_values=True))


def _route(call: Call) -> str:
    return "/" + call.head.path[1:].partition("/")[0]


_ROUTES: dict[str, Callable[[CallsApp, Call, dict[str, str]], Reply | None]] = {
    "/block": CallsApp.block,
    "/bytes": CallsApp.send_bytes,
    "/calls": CallsApp.counts,
    "/collect": CallsApp.collect,
    "/deaf": CallsApp.sleep,
    "/disconnects": CallsApp.disconnects,
    "/echo": CallsApp.echo,
    "/fail": CallsApp.fail,
    "/hold": CallsApp.hold,
    "/held-bytes": CallsApp.hold_bytes,
    "/lines": CallsApp.lines,
    "/next": CallsApp.next_number,
    "/read": CallsApp.read,
    "/refuse": CallsApp.refused,
    "/release": CallsApp.release,
    "/show": CallsApp.show,
    "/sleep": CallsApp.sleep,
    "/status": CallsApp.status,
    "/usual": CallsApp.usual,
    "/waits": CallsApp.waits,
    "/watch": CallsApp.watch,
}

app = CallsApp()


class FailingStart(CallsApp):
    """An application whose start fails."""

    def loop_calls(self) -> CallsApp:
        raise RuntimeError("no database")


failing_start = FailingStart()


class WsgiApp:
    """What Flask's `wsgi_app` may be replaced by."""

    server = app


class FlaskLike:
    """A WSGI application whose `wsgi_app` has the server."""

    wsgi_app = WsgiApp()
    __call__ = CallsApp.__call__


flask_like = FlaskLike()
