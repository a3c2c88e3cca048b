"""A connection without a socket: calls of its own, fairness, and what it holds."""

import asyncio
import logging
import sys
from collections import Counter

import pytest
from gunicorn.config import Config

from app.call import Reply
from app.rims.http1 import Connection
from app.rims.http_server import HttpServer

HEAD = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
REPLY = Reply(b"[1]", lines="X-Request-Id: 1\r\n")
# Calls of Python's functions for a request and its reply, in the rim and `Call`.
MOST_CALLS = 4
# The same for a head that is known but for its own id and length.
MOST_CALLS_ALIKE = 8


class _Transport(asyncio.Transport):
    """A transport whose kernel takes all that is written."""

    def __init__(self):
        super().__init__({"peername": ("1.1.1.1", 1), "sockname": ("2.2.2.2", 2)})
        self.written = []
        self.reads = True

    def set_write_buffer_limits(self, high=None, low=None):
        assert high == 0

    def write(self, data):
        self.written.append(data)

    def is_closing(self):
        return False

    def is_reading(self):
        return self.reads

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True


class _Calls:
    """Answers at once, and keeps what it was asked."""

    def __init__(self):
        self.started = []

    def check(self, _, body_bytes):
        return True

    def reads(self, _, body_bytes):
        return True

    def start(self, call):
        self.started.append(call)
        call.reply_to(call, REPLY)


@pytest.fixture(name="opened")
def _opened():
    """A connection with its transport and its calls, which runs on no event loop."""

    async def opened():
        config, calls, transport = Config(), _Calls(), _Transport()
        config.set("threads", 2)
        log = logging.getLogger(__name__)
        log.access_log_enabled = False
        server = HttpServer([], config, log, _Transport, {})
        connection = Connection(calls, server)
        connection.connection_made(transport)
        return connection, transport, calls

    loop = asyncio.new_event_loop()
    yield (*loop.run_until_complete(opened()), loop)
    loop.close()


def sized(body, fields=b""):
    return HEAD + fields + b"Content-Length: %d\r\n\r\n" % len(body) + body


def calls_of(connection, sent):
    """Return how often each Python function is called for the bytes."""
    found = Counter()

    def note(frame, event, _):
        if event == "call" and "/tests/" not in frame.f_code.co_filename:
            found[frame.f_code.co_name] += 1

    sys.setprofile(note)
    try:
        connection.data_received(sent)
    finally:
        sys.setprofile(None)
    return found


def test_request_with_a_known_head_takes_few_calls(opened):
    """What every request pays on the event loop grows by no helper unseen."""
    connection, transport, calls, _ = opened
    sent = sized(b"[[1]]")
    connection.data_received(sent)
    found = calls_of(connection, sent)
    assert found.total() <= MOST_CALLS, found
    assert len(transport.written) == len(calls.started) == 2
    assert transport.written[0] == transport.written[1]
    assert calls.started[0].head is calls.started[1].head


def test_request_with_an_id_and_a_length_of_its_own_takes_few_calls(opened):
    """A head that differs in these is not parsed again."""
    connection, transport, calls, _ = opened
    connection.data_received(sized(b"[[1]]", b"X-Request-Id: a-1\r\n"))
    calls.started[0].head.asks = asks = object()
    found = calls_of(connection, sized(b"[[1, 2]]", b"X-Request-Id: a-20\r\n"))
    assert found.total() <= MOST_CALLS_ALIKE, found
    assert len(transport.written) == 2
    call = calls.started[1]
    assert call.body == b"[[1, 2]]"
    assert call.head.request_id == call.head.headers["x-request-id"] == "a-20"
    assert call.head.headers["content-length"] == "8"
    assert call.head.asks is asks


def test_body_that_is_not_read_is_discarded(opened):
    """The call is answered without it, once, and the next request behind it."""
    connection, transport, calls, loop = opened
    calls.check = lambda call, _: bool(calls.started.append(call))
    connection.data_received(HEAD + b"Content-Length: 9\r\n\r\n1234")
    connection.data_received(b"56789" + sized(b"[[1]]"))
    (call,) = calls.started
    assert call.body == b""
    assert transport.written == []
    call.reply_to(call, REPLY)
    loop.run_until_complete(asyncio.sleep(0))
    assert len(transport.written) == 2
    assert calls.started[1].body == b"[[1]]"


def test_reading_pauses_for_a_round_of_the_loop_after_a_large_packet(opened):
    """One client's packets do not follow one another while others wait."""
    connection, transport, calls, loop = opened
    size = 64 << 10
    head = HEAD + b"Content-Length: %d\r\n\r\n" % (2 * size + 1)
    connection.data_received(head)
    connection.data_received(bytes(size))
    assert transport.reads
    connection.data_received(bytes(size + 1))
    assert not transport.reads
    loop.run_until_complete(asyncio.sleep(0))
    assert transport.reads
    assert len(calls.started[0].body) == 2 * size + 1


def test_pipelined_requests_that_are_answered_at_once_are_not_buffered(opened):
    """Reading pauses while many wait, however quickly each has its reply."""
    connection, transport, calls, loop = opened
    sent = sized(b"[[1]]")
    count = (70 << 10) // len(sent)
    connection.data_received(sent * count)
    reads = []
    while len(calls.started) < count:
        buffered_bytes = len(sent) * (count - len(calls.started))
        reads.append((buffered_bytes <= 64 << 10, transport.reads))
        loop.call_soon(loop.stop)
        loop.run_forever()
    # The first packet is large, which pauses reading in any case.
    assert all(is_little is reads for is_little, reads in reads[2:])
    assert (True, True) in reads
    assert (False, False) in reads
    assert len(transport.written) == count
