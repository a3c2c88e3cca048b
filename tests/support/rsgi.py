"""What Granian gives an application, with the loop's clock and the body in hand."""

import asyncio
from types import SimpleNamespace


class HandLoop:
    """An event loop whose timers fire when the test says so."""

    def __init__(self, loop):
        self._loop = loop
        self.timers = []
        self.woken = []

    def __getattr__(self, name):
        return getattr(self._loop, name)

    def call_later(self, delay_s, callback):
        timer = SimpleNamespace(delay_s=delay_s, callback=callback)
        timer.cancel = lambda: timer in self.timers and self.timers.remove(timer)
        self.timers.append(timer)
        return timer

    def call_soon_threadsafe(self, callback, *args):
        self.woken.append(args)
        return self._loop.call_soon_threadsafe(callback, *args)

    def fire(self):
        """Let the time of all timers come that are set now."""
        timers, self.timers = self.timers, []
        for timer in timers:
            timer.callback()


def scope(path="/predict", method="POST", headers=(), **others):
    """A request as RSGI describes it."""
    return SimpleNamespace(
        **{
            "proto": "http",
            "http_version": "1.1",
            "server": "127.0.0.1:8000",
            "client": "10.0.0.7:51234",
            "scheme": "http",
            "method": method,
            "path": path,
            "query_string": "",
            "authority": None,
            "headers": dict(headers),
        }
        | others
    )


class Connection:
    """A body of these parts; then it stands still, ends, or is broken.

    Read in parts it has so many empty ones at its end.
    """

    def __init__(self, *parts, end="whole", empty_parts=None):
        self._parts = list(parts)
        self._end = end
        usual = {"whole": 1, "broken": 2}.get(end, 0)
        self._empty_parts = usual if empty_parts is None else empty_parts
        self.gone = asyncio.get_running_loop().create_future()
        self.reads = 0
        self.sent = None

    def __call__(self):
        self.reads += 1
        future = asyncio.get_running_loop().create_future()
        if self._end == "broken":
            future.set_exception(RuntimeError("RSGI transport is closed"))
        elif self._end == "whole":
            future.set_result(b"".join(self._parts))
        return future

    def __aiter__(self):
        return self

    def __anext__(self):
        self.reads += 1
        future = asyncio.get_running_loop().create_future()
        if self._parts:
            future.set_result(self._parts.pop(0))
        elif self._empty_parts:
            self._empty_parts -= 1
            future.set_result(b"")
        elif self._end != "still":
            raise StopAsyncIteration
        return future

    def client_disconnect(self):
        return self.gone

    def response_bytes(self, status, headers, body):
        self.sent = (status, dict(headers), body)

    def close(self, status):
        self.sent = (status, {}, b"")
