"""ASGI 3: uvicorn, Granian, a replica of Ray Serve.

https://asgi.readthedocs.io/en/latest/specs/www.html
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import quote

from app.call import Call, Head, Peer, Reply
from app.errors import BadInput
from app.rims.fields import add_field
from app.serving.loop_calls import READ_METHODS, LoopCalls
from app.serving.loops import Loops

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

# Seconds of a wait after which a disconnect of the client is looked for.
_LOOK_AFTER_S = 0.1
_DISCONNECT = "http.disconnect"


class AsgiApplication:
    """Answers all calls on the event loop that runs."""

    def __init__(self, loops: Loops) -> None:
        """Store what has the calls of the loop."""
        self._loops = loops

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "http":
            reply = await self._answer(scope, receive)
            headers = [
                (name.lower().encode(), value.encode("latin-1"))
                for name, value in reply.headers()
            ]
            start = {"type": "http.response.start", "status": reply.status}
            await send({**start, "headers": headers})
            await send({"type": "http.response.body", "body": reply.body})
        elif scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self._loops.close_calls()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await send({"type": f"{scope['type']}.close"})

    async def _answer(self, scope: Scope, receive: Receive) -> Reply:
        """Return the reply to a request, whose events come meanwhile."""
        loop, calls = asyncio.get_running_loop(), self._loops.loop_calls()
        replied: asyncio.Future[Reply] = loop.create_future()

        def reply_to(call: Call, reply: Reply) -> None:
            if not replied.done():
                replied.set_result(reply)

        call = Call(head_of(scope), b"", _peer_of(scope), reply_to)
        receiving = loop.create_task(_receive(calls, call, receive))
        try:
            await asyncio.wait(
                (replied, receiving), return_when=asyncio.FIRST_COMPLETED
            )
            if receiving.done():
                receiving.result()
            return await replied
        except BaseException:
            # Some servers tell so that the client is gone, by an error of `receive` or
            # by a cancellation.
            calls.left(call)
            raise
        finally:
            receiving.cancel()


async def _receive(calls: LoopCalls, call: Call, receive: Receive) -> None:
    """Read the body and start the call; then tell of a disconnect of the client."""
    parts: list[bytes] = []
    size, announced = 0, _announced_bytes(call.head)
    more = announced is not None
    if announced is not None and not calls.check(call, announced):
        return
    while more:
        event = await receive()
        if call.status:
            return  # It has its reply.
        if event["type"] == _DISCONNECT:
            calls.refuse(call, BadInput("the body can't be read: it is cut off"))
            return
        parts.append(event.get("body", b""))
        more = event.get("more_body", False)
        size += len(parts[-1])
        if not calls.reads(call, size):
            return
    call.body = b"".join(parts)
    calls.start(call)
    await asyncio.sleep(_LOOK_AFTER_S)
    while not call.is_gone:
        # The first event of a request without a body is its empty body.
        if (await receive())["type"] == _DISCONNECT:
            calls.left(call)


def head_of(scope: Scope) -> Head:
    """Return the head of a scope; repeated headers are joined by commas."""
    root, path = scope.get("root_path", ""), scope["path"]
    raw_path = scope.get("raw_path")
    if not raw_path:
        # As a client may have sent it.
        raw_path = quote(path.encode(errors="surrogateescape"), safe="/:").encode()
    if root and f"{path}/".startswith(f"{root}/"):
        path = path[len(root) :] or "/"
        raw_path = raw_path.removeprefix(root.encode())
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        add_field(headers, name, value)
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


def _announced_bytes(head: Head) -> int | None:
    """Return the size of a body that is worth a wait, 0 if not known; None: no body."""
    if head.method in READ_METHODS:
        return None
    length = head.headers.get("content-length")
    if length is not None:
        # int() takes at most 4300 digits; servers bound the number, but not its zeros.
        return int(length.lstrip("0") or 0) or None
    may_follow = "transfer-encoding" in head.headers or head.version >= "2"
    return 0 if may_follow else None
