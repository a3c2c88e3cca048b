"""Calls of gRPC, on an event loop, with fakes around them."""

import asyncio
import math
from types import SimpleNamespace

import pytest

from app.call import Reply
from app.codec.bounds import INLINE_BYTES
from app.errors import Abandoned
from app.protocols.inference_service import INFER
from app.rims.grpc.calls import PredictingCalls, send

LINES = (
    "X-Model-Version: 3\r\nX-Batch-Size: 2\r\nServer-Timing: decode;dur=0.100\r\n"
    "Access-Control-Allow-Origin: *\r\nRetry-After: 1.5\r\nX-Request-Id: till-7\r\n"
)


class Context:
    """gRPC's context of a call without metadata."""

    def __init__(self):
        self.trailers = None

    def peer(self):
        return "ipv4:192.0.2.7:5000"

    def invocation_metadata(self):
        return ()

    def time_remaining(self):
        return None

    def set_trailing_metadata(self, trailers):
        self.trailers = trailers


class LoopCalls:
    """Takes calls, of which it answers none."""

    def __init__(self):
        self.held, self.started, self.refused = [], [], []

    def reads(self, call, body_bytes, held_bytes):
        self.held.append((body_bytes, held_bytes))
        return True

    def start(self, call):
        self.started.append(call)

    def refuse(self, call, error):
        self.refused.append(error)

    def left(self, call):
        call.is_gone = True


def predicting(calls):
    predictor = SimpleNamespace(
        max_body_bytes=math.inf, direct=lambda head, protocol, target: None
    )
    return PredictingCalls(predictor, calls, lambda: None)


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
        answering = predicting(calls)
        # A name of that many bytes.
        sent = b"\n" + _varint(size) + b"m" * size
        task = asyncio.ensure_future(answering.handler(INFER)(sent, Context()))
        while not calls.started:
            await asyncio.sleep(0.001)
        assert answering.pending == 1
        task.cancel()
        await asyncio.wait([task])
        assert (task.cancelled(), answering.pending) == (True, 0)

    asyncio.run(cancel())
    assert calls.started[0].is_gone


def test_call_canceled_while_it_is_parsed_is_refused():
    """So it is counted, and gives back the memory that it holds."""
    calls = LoopCalls()
    sent = b"\n" + _varint(INLINE_BYTES) + b"m" * INLINE_BYTES

    async def cancel():
        task = asyncio.ensure_future(predicting(calls).handler(INFER)(sent, Context()))
        await asyncio.sleep(0)
        task.cancel()
        while not calls.refused and not calls.started:
            await asyncio.sleep(0.001)

    asyncio.run(cancel())
    assert calls.held == [(len(sent), 2 * len(sent))]
    assert not calls.started
    assert isinstance(calls.refused[0], Abandoned)


@pytest.mark.parametrize("size", [9, INLINE_BYTES + 1])
def test_unexpected_error_is_the_answer(monkeypatch, size):
    """Whatever parsing raises, the call gets a reply, and waits no longer."""
    calls = LoopCalls()

    def parse(name, sent):
        raise MemoryError

    monkeypatch.setattr("app.rims.grpc.calls.parse", parse)

    async def answer():
        predicting(calls)._begin(INFER, b"m" * size, Context())  # noqa: SLF001
        while not calls.refused:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(answer(), 10))
    assert isinstance(calls.refused[0], MemoryError)


def _varint(number):
    data = b""
    while number >= 0x80:
        data += bytes([number & 0x7F | 0x80])
        number >>= 7
    return data + bytes([number])
