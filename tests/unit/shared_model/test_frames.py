"""Frames between web workers and model processes."""

import itertools
import json
import socket
import struct
import threading
from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis.extra import numpy as numpy_st

from app.shared_model.connection import Connection
from app.shared_model.frames import Frame, WireError, encode
from testing.server import wait_until

TIMEOUT_S = 10
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


@pytest.fixture(name="ends")
def _ends():
    """The two ends of a connection."""
    ends = socket.socketpair()
    with ends[0], ends[1]:
        yield [Connection(end) for end in ends]


def _frame(meta, tensors):
    """Return an encoded frame."""
    return b"".join(encode(Frame(meta, tensors)))


def _received(data):
    """Return the frame that a peer sends before it closes, or None without data."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=lambda: (ours.sendall(data), ours.close()))
        sender.start()
        try:
            return next(iter(Connection(theirs).receive()), None)
        finally:
            theirs.close()
            sender.join()


@given(_META, st.dictionaries(st.text(), _NUMBERS | _STRINGS, max_size=3))
@settings(max_examples=25)
def test_any_frame_is_received_as_it_was_sent(meta, tensors):
    """JSON values, and tensors of numbers or bytes, are the same on the other side."""
    frame = _received(_frame(meta, tensors))
    # As text, because NaN is not equal to itself.
    assert json.dumps(frame.meta) == json.dumps(meta)
    assert list(frame.tensors) == list(tensors)
    for name, array in tensors.items():
        assert frame.tensors[name].dtype == array.dtype
        np.testing.assert_array_equal(frame.tensors[name], array)


@given(st.binary(max_size=100))
@example(b"BSK2" + _frame({}, {})[4:])
def test_other_bytes_are_a_wire_error(data):
    """Random bytes, and a frame with another magic number, are refused."""
    if data:
        with pytest.raises(WireError):
            _received(data)
    else:
        assert _received(data) is None


@given(st.data())
def test_truncated_frame_is_a_wire_error(data):
    """A frame truncated anywhere is an error."""
    whole = _frame({"a": 1}, {"x": np.arange(6.0), "s": np.array([b"one"], object)})
    size = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(WireError):
        _received(whole[:size])


@given(_JSON, st.binary(max_size=64))
@settings(max_examples=25)
def test_random_tensor_heads_are_a_frame_or_a_wire_error(heads, payload):
    """Random JSON in the place of tensor heads raises nothing but WireError."""
    text = json.dumps({"tensors": heads}).encode()
    header = struct.pack("<4sIQ", b"BSK1", len(text), len(payload))
    try:
        frame = _received(header + text + payload)
    except WireError:
        return
    assert not frame.tensors or isinstance(heads, list)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        *(("|O", [1]), ("<i4,|O", [1]), ("<i4,<i4", [1]), ("|S0", [1])),
        *(("<f4", [99]), ("<f4", [-1]), ("<f4", [1 << 70]), ("<f4", [1] * 99)),
        *(("O", [9]), ("O", [1])),
    ],
)
def test_impossible_tensor_is_a_wire_error(dtype, shape):
    """Python objects, empty dtypes, and sizes beyond the data are refused."""
    text = json.dumps({"tensors": [["x", dtype, shape]]}).encode()
    payload = struct.pack("<I", 1 << 31) + bytes(12)
    header = struct.pack("<4sIQ", b"BSK1", len(text), len(payload))
    with pytest.raises(WireError):
        _received(header + text + payload)


def test_partial_writes_are_continued(ends):
    """A socket that accepts seven bytes at a time gets each byte once, in order."""
    sock = ends[0].sock

    def sendmsg(buffers, *_):
        return sock.send(b"".join(map(bytes, buffers))[:7])

    tensors = {"x": np.arange(9.0), "s": np.array([b"one", b"", b"three"], object)}
    slow = SimpleNamespace(sendmsg=sendmsg, setsockopt=sock.setsockopt)
    Connection(slow).send(encode(Frame({"a": 1}, tensors)))
    (frame,) = ends[1].receive()
    assert frame.meta == {"a": 1}
    for name, array in tensors.items():
        np.testing.assert_array_equal(frame.tensors[name], array)


def test_send_does_not_wait_for_the_peer_to_read(ends):
    """Frames larger than the socket's buffers are received later, in order."""
    pictures = np.arange(3 << 20, dtype=np.int32).reshape(3, 1 << 20)
    for number, picture in enumerate(pictures):
        ends[0].send(encode(Frame({"number": number}, {"rows": picture})))
    ends[0].send(encode(Frame({"number": 3})))
    received = []
    while len(received) < 4:
        received += ends[1].receive()
    assert [frame.meta["number"] for frame in received] == [0, 1, 2, 3]
    for frame, picture in zip(received, pictures, strict=False):
        np.testing.assert_array_equal(frame.tensors["rows"], picture)
    wait_until(lambda: "send rest" not in _threads(), TIMEOUT_S)
    ends[0].send(encode(Frame({"number": 4})))
    assert ends[1].receive()[0].meta == {"number": 4}


def _threads():
    return [thread.name for thread in threading.enumerate()]


def test_frame_sent_as_the_sending_thread_ends_is_sent_once(monkeypatch):
    """A frame that is added when a thread has just sent all is sent by a new thread."""
    received, senders = [], []
    waiting = [[b"second"]]

    def sendmsg(buffers, _=(), flags=0):
        if flags:
            raise BlockingIOError
        senders.append(threading.current_thread())
        if senders[-1] is not senders[0]:
            senders[0].join(TIMEOUT_S)
        received.extend(buffers)
        return sum(map(len, buffers))

    class Lock:
        """Has a sending thread send another frame right after each release."""

        def __enter__(self):
            lock.acquire()

        def __exit__(self, *_):
            lock.release()
            if waiting and threading.current_thread() in senders:
                connection.send(waiting.pop())

    lock = threading.Lock()
    with monkeypatch.context() as patched:
        fake = SimpleNamespace(Lock=Lock)
        patched.setattr("app.shared_model.connection.threading", fake)
        sock = SimpleNamespace(sendmsg=sendmsg, setsockopt=lambda *_: None)
        connection = Connection(sock)
    connection.send([b"first"])
    wait_until(lambda: len(set(senders)) == 2, TIMEOUT_S)
    for sender in senders:
        sender.join(TIMEOUT_S)
    assert received == [b"first", b"second"]


def test_connection_ends_if_no_thread_can_send_the_rest(ends, monkeypatch):
    """Both ends find the frame truncated."""

    def start(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(ConnectionAbortedError):
            ends[0].send(encode(Frame({}, {"rows": np.zeros(1 << 22)})))
    with pytest.raises(WireError, match="closed within a frame"):
        ends[1].receive()
    assert ends[0].receive() == []


def test_send_timeout_ends_the_connection(ends):
    """A peer that reads nothing until the timeout is disconnected."""
    sock = ends[0].sock
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 1000))
    ends[0].send(encode(Frame({}, {"rows": np.zeros(1 << 22)})))
    assert ends[0].receive() == []


def test_send_to_a_closed_peer_is_an_error(ends):
    """The error is an OSError."""
    ends[1].sock.close()
    with pytest.raises(OSError, match="Broken pipe"):
        ends[0].send(encode(Frame({})))


def test_received_tensors_are_aligned_views(ends):
    """Numbers are not copied, and begin at multiples of 16 bytes."""
    for _ in range(2):
        tensors = {"a": np.arange(3, dtype=np.int8), "b": np.arange(5.0)}
        ends[0].send(encode(Frame({}, tensors)))
    frames = ends[1].receive()
    assert len(frames) == 2
    for array in itertools.chain(*(frame.tensors.values() for frame in frames)):
        assert not array.flags.owndata
        assert array.ctypes.data % 16 == 0


@pytest.mark.parametrize("size", [1, 15, 16, 17, 40, 1 << 20])
def test_frames_are_separated_whatever_the_size_of_reads(ends, size):
    """Two frames are received, and then the end of the stream."""
    whole = b"".join(_frame({"number": n}, {"x": np.array([n])}) for n in (1, 2))

    def send():
        for begin in range(0, len(whole), size):
            ends[0].sock.sendall(whole[begin : begin + size])
        ends[0].close()

    sender = threading.Thread(target=send)
    sender.start()
    received = []
    while frames := ends[1].receive():
        received += frames
    sender.join()
    assert [frame.meta["number"] for frame in received] == [1, 2]
    assert [frame.tensors["x"].tolist() for frame in received] == [[1], [2]]


def test_non_contiguous_tensor_is_sent_by_value(ends):
    """A tensor with strides is received as the same values."""
    rows = np.arange(12.0).reshape(3, 4)[:, ::2]
    ends[0].send(encode(Frame({}, {"rows": rows})))
    np.testing.assert_array_equal(ends[1].receive()[0].tensors["rows"], rows)
