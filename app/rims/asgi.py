"""ASGI 3: uvicorn, Granian, a replica of Ray Serve.

https://asgi.readthedocs.io/en/latest/specs/www.html
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote

from app.call import Call, Head, Peer, Reply
from app.errors import BadInput
from app.serving.loop_calls import READ_METHODS, LoopCalls
from app.serving.loops import Loops

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

# Seconds of a wait after which a disconnect of the client is looked for.
_LOOK_AFTER_S = 0.1


class AsgiApplication:
    """Answers all calls on the event loop that runs."""

    def __init__(self, loops: Loops) -> None:
        """Store what has the calls of the loop."""
        self._loops = loops

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "http":
            await _Exchange(self._loops.loop_calls(), scope, receive).serve(send)
        elif scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self._loops.close_calls()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await send({"type": f"{scope['type']}.close"})


class _Exchange:
    """One request: its call, and the future of its reply."""

    def __init__(self, calls: LoopCalls, scope: Scope, receive: Receive) -> None:
        self._calls = calls
        self._receive = receive
        self._reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        # Avoid a reference cycle: the call has the future, and not this object.
        reply_to = partial(_set_reply, self._reply)
        self._call = Call(head_of(scope), b"", _peer_of(scope), reply_to)

    async def serve(self, send: Send) -> None:
        call, calls = self._call, self._calls
        try:
            if not _has_body(call.head) or (
                calls.check(call, _length_of(call.head)) and await self._read()
            ):
                calls.start(call)
            reply = await self._wait()
        except BaseException:
            # The server cancels the task of a client that is gone.
            calls.left(call)
            raise
        start = {
            "type": "http.response.start",
            "status": reply.status,
            "headers": [
                (_header_name(name), value.encode("latin-1"))
                for name, value in reply.headers()
            ],
        }
        await send(start)
        await send({"type": "http.response.body", "body": reply.body})

    async def _read(self) -> bool:
        """Read the body; return whether it came, else the call has its reply."""
        calls, call = self._calls, self._call
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            event = await self._unless_answered(self._receive())
            if event is None:
                return False
            if event["type"] == "http.disconnect":
                calls.refuse(call, BadInput("the body can't be read: it is cut off"))
                return False
            part = event.get("body", b"")
            more = event.get("more_body", False)
            size += len(part)
            parts.append(part)
            if not calls.reads(call, size):
                return False
        call.body = parts[0] if len(parts) == 1 else b"".join(parts)
        return True

    async def _unless_answered(
        self, waiting: Awaitable[MutableMapping[str, Any]]
    ) -> MutableMapping[str, Any] | None:
        """Return the result of a wait, None if the reply comes first."""
        future = asyncio.ensure_future(waiting)
        try:
            if not future.done():
                await asyncio.wait(
                    (future, self._reply), return_when=asyncio.FIRST_COMPLETED
                )
            return future.result() if future.done() else None
        finally:
            # Also when the server cancels the task.
            future.cancel()

    async def _wait(self) -> Reply:
        """Return the reply; in a long wait, look for a disconnect meanwhile."""
        if not self._reply.done():
            await asyncio.wait((self._reply,), timeout=_LOOK_AFTER_S)
        while not self._reply.done():
            # The first event of a request without a body is its empty body.
            event = await self._unless_answered(self._receive())
            if event is not None and event["type"] == "http.disconnect":
                self._calls.left(self._call)
                break
        return await self._reply


def _set_reply(replied: "asyncio.Future[Reply]", call: Call, reply: Reply) -> None:
    del call
    if not replied.done():
        replied.set_result(reply)


def head_of(scope: Scope) -> Head:
    """Return the head of a scope; repeated headers are joined by commas."""
    root, path = scope.get("root_path", ""), scope["path"]
    raw_path = scope.get("raw_path") or _quoted(path)
    if root and f"{path}/".startswith(f"{root}/"):
        path = path[len(root) :] or "/"
        raw_path = raw_path.removeprefix(root.encode())
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        # A name with an underscore could pass for another name in WSGI's variables.
        if b"_" not in name:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            headers[key] = f"{headers[key]},{text}" if key in headers else text
    return Head(
        scope["method"],
        path,
        scope["query_string"].decode("latin-1"),
        headers,
        raw_path.decode("latin-1"),
        scope["http_version"],
    )


def _peer_of(scope: Scope) -> Peer:
    client, client_port = scope.get("client") or ("", 0)
    server, server_port = scope.get("server") or ("unix", 0)
    scheme = scope.get("scheme", "http")
    return Peer(client, client_port or 0, server, server_port or 0, scheme)


def _has_body(head: Head) -> bool:
    """Return whether a body may follow the head that is worth a wait."""
    if head.method in READ_METHODS:
        return False
    length = head.headers.get("content-length")
    if length is not None:
        return length != "0"
    return "transfer-encoding" in head.headers or head.version not in ("1.0", "1.1")


def _length_of(head: Head) -> int:
    """Return the announced bytes of the body, 0 if they are not known."""
    # int() takes at most 4300 digits; servers bound the number, but not its zeros.
    return int(head.headers.get("content-length", "").lstrip("0") or 0)


def _quoted(path: str) -> bytes:
    """Return a path as a client may have sent it, for servers without `raw_path`."""
    return quote(path.encode(errors="surrogateescape"), safe="/:").encode()


@lru_cache(maxsize=128)
def _header_name(name: str) -> bytes:
    return name.lower().encode("latin-1")
