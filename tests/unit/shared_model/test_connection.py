"""Frames over real sockets, read by an event loop and by a thread."""

import itertools
import json
import queue
import socket
import struct
import threading
import time
import weakref
from contextlib import suppress

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis.extra import numpy as numpy_st

from app.shared_model.connection import FrameConnection
from app.shared_model.frames import Frame, encode
from testing.server import wait_until
from tests.support.shared_model import TIMEOUT_S, EventLoop, Peer, failing_threads

_DTYPES = st.one_of(
    numpy_st.integer_dtypes(endianness="<"),
    numpy_st.unsigned_integer_dtypes(endianness="<"),
    numpy_st.floating_dtypes(endianness="<"),
    numpy_st.boolean_dtypes(),
)
_SHAPES = numpy_st.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
_NUMBERS = numpy_st.arrays(_DTYPES, _SHAPES)
_STRINGS = numpy_st.arrays(np.dtype(object), _SHAPES, elements=st.binary(max_size=40))
_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    # A path can contain a surrogate, which has no UTF-8 encoding.
    | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
_META = st.dictionaries(st.text().filter(lambda key: key != "tensors"), _JSON)
# More than fits into a socket's buffers.
_LARGE = np.arange(3 << 20, dtype=np.int32)
# For tests whose function-scoped fixture has no state.
_RANDOM = settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class End:
    """A FrameConnection over a socket, and what it has received; None is its end."""

    def __init__(self, sock, loop=None, **rest):
        self._received = queue.SimpleQueue()
        self.reads = 0
        self.connection = FrameConnection(sock, self._take, self._closed, **rest)
        self.connection.start(loop and loop.loop)
        if loop is not None:
            loop.call(lambda: None)

    def _take(self, frames):
        self.reads += 1
        for frame in frames:
            self._received.put(frame)

    def _closed(self):
        self._received.put(None)

    def send(self, meta, tensors=None):
        self.connection.send(encode(Frame(meta, tensors or {})))

    def receive(self):
        return self._received.get(timeout=TIMEOUT_S)


@pytest.fixture(name="reader", params=["thread", "event loop"])
def _reader(request, loop):
    """The event loop that reads; None: a thread."""
    return loop if request.param == "event loop" else None


@pytest.fixture(name="pair")
def _pair(reader):
    """A connection, and the peer at its other end."""
    ours, theirs = socket.socketpair()
    end, peer = End(ours, reader), Peer(theirs)
    yield end, peer
    end.connection.shut_down()
    peer.close()


def _encoded(meta, tensors=None):
    return b"".join(encode(Frame(meta, tensors or {})))


def _received(data, reader):
    """Return the frames that a peer sends before it closes."""
    ours, theirs = socket.socketpair()
    end = End(ours, reader)
    # A peer that sends what is malformed is disconnected.
    with theirs, suppress(BrokenPipeError):
        theirs.sendall(data)
    return list(iter(end.receive, None))


def _framed(text, payload):
    """Return a frame of any JSON and any tensors."""
    return struct.pack("<4sIQ", b"BSK1", len(text), len(payload)) + text + payload


@given(_META, st.dictionaries(st.text(), _NUMBERS | _STRINGS, max_size=3))
@_RANDOM
def test_any_frame_is_received_as_it_was_sent(reader, meta, tensors):
    """JSON values, and tensors of numbers or bytes, are the same on the other side."""
    (frame,) = _received(_encoded(meta, tensors), reader)
    # As text, because NaN is not equal to itself.
    assert json.dumps(frame.meta) == json.dumps(meta)
    assert list(frame.tensors) == list(tensors)
    for name, array in tensors.items():
        assert frame.tensors[name].dtype == array.dtype
        np.testing.assert_array_equal(frame.tensors[name], array)


@given(st.binary(max_size=100))
@example(b"BSK2" + _encoded({})[4:])
@_RANDOM
def test_other_bytes_end_the_connection(reader, data):
    """Random bytes, and a frame with another magic number, are no frame."""
    assert _received(data, reader) == []


@given(st.data())
@_RANDOM
def test_half_a_frame_is_not_received(reader, data):
    """A frame that is truncated anywhere, as its sender dies, ends the connection."""
    tensors = {"x": np.arange(6.0), "s": np.array([b"one"], object)}
    whole = _encoded({"a": 1}, tensors)
    size = data.draw(st.integers(1, len(whole) - 1))
    first = _encoded({"a": 0})
    received = _received(first + whole[:size], reader)
    assert [frame.meta for frame in received] == [{"a": 0}]


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_half_a_large_frame_is_not_received(reader, share):
    """One that is read into memory of its own, too."""
    whole = _encoded({}, {"rows": np.zeros(1 << 15)})
    assert _received(whole[: int(len(whole) * share)], reader) == []


@given(_JSON, st.binary(max_size=64))
@_RANDOM
def test_random_tensor_heads_are_a_frame_or_end_the_connection(reader, heads, payload):
    """Random JSON in the place of tensor heads raises nothing."""
    text = json.dumps({"tensors": heads}).encode()
    for frame in _received(_framed(text, payload), reader):
        assert not frame.tensors or isinstance(heads, list)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("|O", [1]),
        ("<i4,|O", [1]),
        ("<i4,<i4", [1]),
        ("|S0", [1]),
        ("<f4", [99]),
        ("<f4", [-1]),
        ("<f4", [1 << 70]),
        ("<f4", [1] * 99),
        ("O", [9]),
        ("O", [1]),
    ],
)
def test_impossible_tensor_ends_the_connection(reader, dtype, shape):
    """Python objects, empty dtypes, and sizes beyond the data are refused."""
    text = json.dumps({"tensors": [["x", dtype, shape]]}).encode()
    payload = struct.pack("<I", 1 << 31) + bytes(12)
    assert _received(_framed(text, payload), reader) == []


def test_frame_of_impossible_size_ends_the_connection(reader):
    """Its memory is not there."""
    header = struct.pack("<4sIQ", b"BSK1", 0, (1 << 63) - 1)
    assert _received(header, reader) == []


@pytest.mark.parametrize("size", [1, 15, 16, 17, 40, 1 << 20])
def test_frames_are_separated_whatever_the_size_of_reads(reader, size):
    """Two frames are received, and then the end of the stream."""
    whole = b"".join(_encoded({"number": n}, {"x": np.array([n])}) for n in (1, 2))
    ours, theirs = socket.socketpair()
    end = End(ours, reader)
    with theirs:
        for begin in range(0, len(whole), size):
            theirs.sendall(whole[begin : begin + size])
    received = list(iter(end.receive, None))
    assert [frame.meta["number"] for frame in received] == [1, 2]
    assert [frame.tensors["x"].tolist() for frame in received] == [[1], [2]]


def test_large_and_small_frames_are_received_in_order(pair):
    """A large frame leaves the next one where it begins."""
    end, peer = pair
    rows = [_LARGE[:1], _LARGE, _LARGE[:20000], _LARGE[:3]]
    written = b"".join(
        _encoded({"number": number}, {"rows": each}) for number, each in enumerate(rows)
    )
    sender = threading.Thread(target=peer.sock.sendall, args=(written,))
    sender.start()
    for number, each in enumerate(rows):
        frame = end.receive()
        assert frame.meta["number"] == number
        np.testing.assert_array_equal(frame.tensors["rows"], each)
    sender.join()


def test_received_tensors_are_aligned_views(pair):
    """Numbers are not copied, and begin at multiples of 16 bytes."""
    end, peer = pair
    tensors = {"a": np.arange(3, dtype=np.int8), "b": np.arange(5.0), "c": _LARGE}
    for _ in range(2):
        peer.send({}, tensors)
    frames = [end.receive(), end.receive()]
    for array in itertools.chain(*(frame.tensors.values() for frame in frames)):
        assert not array.flags.owndata
        assert array.ctypes.data % 16 == 0


def test_non_contiguous_tensor_is_sent_by_value(pair):
    """A tensor with strides is received as the same values."""
    end, peer = pair
    for whole in (np.arange(12.0).reshape(3, 4), np.ones((2000, 4))):
        rows = whole[:, ::2]
        end.send({}, {"rows": rows})
        np.testing.assert_array_equal(peer.receive().tensors["rows"], rows)


def test_send_does_not_wait_for_the_peer_to_read(pair):
    """Frames larger than the socket's buffers are received later, in order."""
    end, peer = pair
    pictures = _LARGE.reshape(3, 1 << 20)
    for number, picture in enumerate(pictures):
        end.send({"number": number}, {"rows": picture})
    end.send({"number": 3})
    for number, picture in enumerate(pictures):
        frame = peer.receive()
        assert frame.meta["number"] == number
        np.testing.assert_array_equal(frame.tensors["rows"], picture)
    assert peer.receive().meta == {"number": 3}
    wait_until(lambda: "send rest" not in _threads(), TIMEOUT_S)
    end.send({"number": 4})
    assert peer.receive().meta == {"number": 4}


def _threads():
    return [thread.name for thread in threading.enumerate()]


def test_frames_of_many_threads_are_sent_whole(pair):
    """No frame is lost, or begins within another one, while the peer reads slowly."""
    end, peer = pair
    rows = np.zeros(1 << 17)

    def send(place):
        for number in range(20):
            end.send({"number": [place, number]}, {"rows": rows} if number % 3 else {})

    senders = [threading.Thread(target=send, args=(place,)) for place in range(4)]
    for sender in senders:
        sender.start()
    received = [peer.receive().meta["number"] for _ in range(80)]
    for sender in senders:
        sender.join()
    for place in range(4):
        numbers = [number for at, number in received if at == place]
        assert numbers == list(range(20))


def test_few_frames_of_one_turn_of_the_event_loop_are_one_write(loop):
    """As are many that are sent together, such as the replies of a batch."""
    # Keeps each write apart.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.settimeout(TIMEOUT_S)
    end = End(ours, loop)
    loop.call(lambda: [end.send({"number": number}) for number in range(3)])
    assert theirs.recv(1 << 16).count(b"number") == 3
    replies = [each for n in range(9) for each in encode(Frame({"number": n}))]
    loop.call(lambda: end.connection.send(replies))
    assert theirs.recv(1 << 16).count(b"number") == 9
    theirs.close()
    assert end.receive() is None


def test_first_of_many_frames_are_sent_before_the_turn_ends(loop):
    """So the peer works on them while more requests are read."""
    ours, theirs = socket.socketpair()
    end, other = End(ours, loop), End(theirs)

    def turn():
        for number in range(4):
            end.send({"number": number})
        return [other.receive().meta["number"] for _ in range(4)]

    assert loop.call(turn) == [0, 1, 2, 3]
    end.connection.shut_down()
    assert other.receive() is None


def test_reading_thread_ends_once_an_event_loop_reads(loop):
    """From the frame after the next one on, the event loop's thread takes them."""
    ours, theirs = socket.socketpair()
    takers = queue.SimpleQueue()
    connection = FrameConnection(
        ours, lambda _: takers.put(threading.current_thread()), lambda: None
    )
    connection.start(None)
    peer = Peer(theirs)
    peer.send({})
    reader = takers.get(timeout=TIMEOUT_S)
    assert reader is not loop.thread
    loop.call(lambda: connection.attach(loop.loop))
    peer.send({})
    assert takers.get(timeout=TIMEOUT_S) is reader
    reader.join(TIMEOUT_S)
    peer.send({})
    assert takers.get(timeout=TIMEOUT_S) is loop.thread
    peer.close()


def test_frame_that_can_not_be_taken_ends_the_connection(reader, caplog):
    """The error is logged, and the end is told."""
    ours, theirs = socket.socketpair()
    closed = threading.Event()

    def take(_):
        raise ValueError("taken by nobody")

    FrameConnection(ours, take, closed.set).start(reader and reader.loop)
    peer = Peer(theirs)
    peer.send({})
    assert closed.wait(TIMEOUT_S)
    assert "taken by nobody" in caplog.text
    assert peer.is_at_end()
    peer.close()


def test_peer_that_reads_nothing_is_disconnected(loop):
    """One that makes room in the send buffer within each timeout is not."""
    ours, theirs = socket.socketpair()
    end, peer = End(ours, loop, send_timeout_s=0.3), Peer(theirs)
    for _ in range(5):
        end.send({}, {"rows": _LARGE})
    for _ in range(4):
        time.sleep(0.1)
        peer.exactly(_LARGE.nbytes)
    assert end.receive() is None
    with pytest.raises(EOFError):
        peer.exactly(2 * _LARGE.nbytes)
    peer.close()


def test_connection_ends_if_no_thread_can_send_the_rest(monkeypatch):
    """Both ends find the frame truncated."""
    ours, theirs = socket.socketpair()
    end, peer = End(ours), Peer(theirs)
    with failing_threads({"send rest"}, monkeypatch):
        end.send({}, {"rows": _LARGE})
    with pytest.raises(EOFError):
        peer.receive()
    assert end.receive() is None
    peer.close()


def test_send_to_a_closed_peer_ends_the_connection(pair):
    """What is sent later is dropped, without an error."""
    end, peer = pair
    peer.close()
    end.send({})
    assert end.receive() is None
    rows = np.zeros(1 << 20)
    is_kept = weakref.ref(rows)
    for _ in range(2):
        end.send({}, {"rows": rows})
    del rows
    assert not is_kept()


def test_connection_may_end_in_a_turn_that_sends(loop, caplog):
    """What would be sent at the end of the turn is dropped."""
    ours, theirs = socket.socketpair()
    closed = threading.Event()

    def take(_):
        connection.send(encode(Frame({})))
        raise ValueError("taken by nobody")

    connection = FrameConnection(ours, take, closed.set)
    connection.start(loop.loop)
    peer = Peer(theirs)
    peer.send({})
    assert closed.wait(TIMEOUT_S)
    loop.call(lambda: None)
    assert [each.name for each in caplog.records] == ["app.shared_model.connection"]
    peer.close()


def test_connection_ends_if_its_event_loop_is_closed(loop):
    """The thread that read until then ends in order."""
    ours, theirs = socket.socketpair()
    end, peer = End(ours), Peer(theirs)
    other = EventLoop()
    other.call(lambda: end.connection.attach(other.loop))
    other.close()
    peer.send({"number": 1})
    assert end.receive().meta == {"number": 1}
    assert end.receive() is None
    assert peer.is_at_end()
    peer.close()


def test_thread_that_sends_ends_with_the_connection():
    """Although the peer, which has sent what is malformed, reads nothing."""
    ours, theirs = socket.socketpair()
    end, peer = End(ours), Peer(theirs)
    end.send({}, {"rows": _LARGE})
    assert "send rest" in _threads()
    peer.sock.sendall(b"x" * 16)
    assert end.receive() is None
    wait_until(lambda: "send rest" not in _threads(), TIMEOUT_S)
    peer.close()
