"""Calls of gRPC, on an event loop, with fakes around them."""

import asyncio
import gc
import itertools
import math
import weakref
from types import SimpleNamespace

import pytest

from app.call import Reply
from app.codec.bounds import INLINE_BYTES
from app.errors import Abandoned
from app.protocols.inference_service import INFER
from app.rims.grpc.calls import GrpcCalls, send

LINES = (
    "X-Model-Version: 3\r\nX-Batch-Size: 2\r\nServer-Timing: decode;dur=0.100\r\n"
    "Access-Control-Allow-Origin: *\r\nRetry-After: 1.5\r\nX-Request-Id: till-7\r\n"
)


class Context:
    """gRPC's context of a call without metadata."""

    def __init__(self):
        self.trailers = None
        # In seconds, at each look; None: the client gave no deadline.
        self.remaining = itertools.repeat(None)

    def peer(self):
        return "ipv4:192.0.2.7:5000"

    def invocation_metadata(self):
        return ()

    def time_remaining(self):
        return next(self.remaining)

    def set_trailing_metadata(self, trailers):
        self.trailers = trailers


class LoopCalls:
    """Takes calls, of which it answers none."""

    def __init__(self):
        self.held, self.started, self.refused = [], [], []
        # Of large calls, in seconds, before they wait for a thread.
        self.timeouts = []

    def holds(self, call, count):
        self.held.append(count)
        self.timeouts.append(call.rim_timeout_s)
        return True

    def start(self, call):
        self.started.append(call)

    def refuse(self, call, error):
        self.refused.append(error)

    def left(self, call):
        call.is_gone = True


def answering(calls):
    """Calls of gRPC, and the handler of ModelInfer."""
    predictor = SimpleNamespace(
        max_body_bytes=math.inf,
        direct=lambda head, protocol, target: None,
        check_head=lambda head, address, now: None,
    )
    loops = SimpleNamespace(loop_calls=lambda: calls)
    made = GrpcCalls(loops, predictor, None, None)
    made.start(lambda: None)
    details = SimpleNamespace(method=INFER.path, invocation_metadata=())
    return made, made.service(details).unary_unary


def test_headers_of_a_reply_are_trailing_metadata():
    """Only the headers of the protocol are, in lower case; gRPC has its own retry."""
    context = Context()
    reply = Reply(b"body", "application/octet-stream", lines=LINES)
    assert asyncio.run(send(context, reply)) == b"body"
    assert context.trailers == (
        ("x-model-version", "3"),
        ("x-batch-size", "2"),
        ("server-timing", "decode;dur=0.100"),
        ("retry-after", "1.5"),
        ("grpc-retry-pushback-ms", "1500"),
        ("x-request-id", "till-7"),
    )


@pytest.mark.parametrize("size", [9, INLINE_BYTES + 1])
def test_canceled_call_is_left(size):
    """A call that is canceled counts no more, and its rows need not run."""
    calls = LoopCalls()

    async def cancel():
        made, infer = answering(calls)
        # A name of that many bytes.
        sent = b"\n" + _varint(size) + b"m" * size
        task = asyncio.ensure_future(infer(sent, Context()))
        async with asyncio.timeout(10):
            while not calls.started:
                await asyncio.sleep(0.001)
        assert made.pending == 1
        task.cancel()
        await asyncio.wait([task])
        assert (task.cancelled(), made.pending) == (True, 0)

    asyncio.run(cancel())
    assert calls.started[0].is_gone


def test_call_canceled_while_it_is_parsed_is_refused():
    """So it is counted, and gives back the memory that it holds."""
    calls = LoopCalls()
    sent = b"\n" + _varint(INLINE_BYTES) + b"m" * INLINE_BYTES

    async def cancel():
        _, infer = answering(calls)
        task = asyncio.ensure_future(infer(sent, Context()))
        await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(10):
            while not calls.refused and not calls.started:
                await asyncio.sleep(0.001)

    asyncio.run(cancel())
    assert calls.held == [2 * len(sent)]
    assert not calls.started
    assert isinstance(calls.refused[0], Abandoned)


def _varint(number):
    data = b""
    while number >= 0x80:
        data += bytes([number & 0x7F | 0x80])
        number >>= 7
    return data + bytes([number])


def test_deadline_of_a_large_message_counts_from_its_arrival():
    """The time that it waits for a thread is not taken off twice."""
    calls = LoopCalls()
    sent = b"\n" + _varint(INLINE_BYTES) + b"m" * INLINE_BYTES
    context = Context()
    context.remaining = itertools.repeat(1.0)

    async def send_one():
        _, infer = answering(calls)
        task = asyncio.ensure_future(infer(sent, context))
        async with asyncio.timeout(10):
            while not calls.started:
                await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(send_one())
    assert calls.timeouts == [1.0]


@pytest.mark.parametrize(("size", "is_kept"), [(20, True), (20_000, False)])
def test_head_with_a_long_name_is_not_kept(size, is_kept):
    """Any client may send names of any size, one after the other."""
    calls = LoopCalls()

    async def send_one():
        made, infer = answering(calls)
        sent = b"\n" + _varint(size) + b"m" * size
        task = asyncio.ensure_future(infer(sent, Context()))
        while not calls.started:
            await asyncio.sleep(0)
        head = weakref.ref(calls.started.pop().head)
        task.cancel()
        await asyncio.wait([task])
        del task
        gc.collect()
        assert (head() is not None) is is_kept
        del made

    asyncio.run(send_one())
