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
from hypothesis import given
from hypothesis.extra import numpy as numpy_st

from app.shared_model.connection import Connection
from app.shared_model.frames import Frame, WireError, encode
from testing.server import wait_until

PATIENCE_S = 10
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
    # Half a surrogate, which no encoding has, can stand in a path.
    | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
_META = st.dictionaries(st.text().filter(lambda key: key != "tensors"), _JSON)


@pytest.fixture(name="ends")
def _ends():
    """Both ends of a connection."""
    ends = socket.socketpair()
    with ends[0], ends[1]:
        yield [Connection(end) for end in ends]


def _frame(meta, tensors):
    """A frame as bytes."""
    return b"".join(encode(Frame(meta, tensors)))


def _received(data):
    """The frame that bytes make, after which the other end closes; None: no bytes."""
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
def test_any_frame_crosses_unchanged(meta, tensors):
    """JSON values and tensors of numbers or bytes come out as they went in."""
    frame = _received(_frame(meta, tensors))
    # As text, because not a number is not equal to itself.
    assert json.dumps(frame.meta) == json.dumps(meta)
    assert list(frame.tensors) == list(tensors)
    for name, array in tensors.items():
        assert frame.tensors[name].dtype == array.dtype
        np.testing.assert_array_equal(frame.tensors[name], array)


@given(st.binary(max_size=100))
def test_wild_bytes_are_no_frame(data):
    """Bytes that are no frame are refused, and nothing else is raised."""
    if data:
        with pytest.raises(WireError):
            _received(data)
    else:
        assert _received(data) is None


@given(st.data())
def test_a_frame_that_ends_early_is_refused(data):
    """A frame cut anywhere is an error, never half an answer."""
    whole = _frame({"a": 1}, {"x": np.arange(6.0), "s": np.array([b"one"], object)})
    size = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(WireError):
        _received(whole[:size])


@given(_JSON, st.binary(max_size=64))
def test_wild_values_in_a_sound_frame_do_no_harm(heads, payload):
    """Whatever JSON describes the tensors, a frame or a WireError comes."""
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
        *(("|O", [1]), ("<i4,|O", [1]), ("|S0", [1]), ("<f4", [99]), ("<f4", [-1])),
        *(
            ("<i4,<i4", [1]),
            ("<f4", [1 << 70]),
            ("<f4", [1] * 99),
            ("O", [9]),
            ("O", [1]),
        ),
    ],
)
def test_tensors_that_can_not_be_are_refused(dtype, shape):
    """Python objects, empty types, and sizes that the data has not, are errors."""
    text = json.dumps({"tensors": [["x", dtype, shape]]}).encode()
    payload = struct.pack("<I", 1 << 31) + bytes(12)
    header = struct.pack("<4sIQ", b"BSK1", len(text), len(payload))
    with pytest.raises(WireError):
        _received(header + text + payload)


def test_another_protocol_is_no_frame():
    """What is a frame but for its first bytes is refused."""
    whole = _frame({}, {})
    with pytest.raises(WireError, match="no frame"):
        _received(b"BSK2" + whole[4:])


def test_what_the_kernel_takes_in_parts_crosses_whole(ends):
    """A socket that takes seven bytes at a time gets each byte once, in order."""
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


def test_who_sends_more_than_the_other_end_reads_does_not_wait(ends):
    """Frames larger than any buffer are sent, and come whole and in order later."""
    pictures = np.random.default_rng(0).integers(0, 255, (3, 1 << 22), np.int32)
    for number, picture in enumerate(pictures):
        ends[0].send(encode(Frame({"number": number}, {"rows": picture})))
    ends[0].send(encode(Frame({"number": 3})))
    received = []
    while len(received) < 4:
        received += ends[1].receive()
    assert [frame.meta["number"] for frame in received] == [0, 1, 2, 3]
    for frame, picture in zip(received, pictures, strict=False):
        np.testing.assert_array_equal(frame.tensors["rows"], picture)
    # And so does what is sent once all of it has gone.
    wait_until(lambda: not ends[0]._left, PATIENCE_S)
    ends[0].send(encode(Frame({"number": 4})))
    assert ends[1].receive()[0].meta == {"number": 4}


def test_what_is_sent_as_a_sender_ends_crosses_once():
    """A frame that comes when a thread has just sent the rest is sent by one thread."""
    crossed, senders = [], []
    waiting = [[b"second"]]

    def sendmsg(buffers, _=(), flags=0):
        if flags:
            raise BlockingIOError
        senders.append(threading.current_thread())
        if senders[-1] is not senders[0]:
            senders[0].join(PATIENCE_S)
        crossed.extend(buffers)
        return sum(map(len, buffers))

    class Lock:
        """A thread that gives it back stands still while the next frame is sent."""

        def __enter__(self):
            lock.acquire()

        def __exit__(self, *_):
            lock.release()
            if waiting and threading.current_thread() in senders:
                connection.send(waiting.pop())

    lock = threading.Lock()
    connection = Connection(
        SimpleNamespace(sendmsg=sendmsg, setsockopt=lambda *_: None)
    )
    connection._sending = Lock()
    connection.send([b"first"])
    wait_until(lambda: len(set(senders)) == 2, PATIENCE_S)
    for sender in senders:
        sender.join(PATIENCE_S)
    assert crossed == [b"first", b"second"]


def test_a_frame_that_no_thread_can_finish_ends_the_connection(ends, monkeypatch):
    """Where no thread can be started, both ends see that a frame is cut off."""

    def start(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(ConnectionAbortedError):
            ends[0].send(encode(Frame({}, {"rows": np.zeros(1 << 22)})))
    with pytest.raises(WireError, match="closed within a frame"):
        ends[1].receive()
    assert ends[0].receive() == []


def test_an_end_that_takes_nothing_is_given_up(ends):
    """When the rest can't be sent in time, whoever receives is told of the end."""
    sock = ends[0].sock
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 1000))
    ends[0].send(encode(Frame({}, {"rows": np.zeros(1 << 22)})))
    assert ends[0].receive() == []


def test_nobody_sends_into_what_has_gone(ends):
    """To send when the other end has closed is an OSError."""
    ends[1].sock.close()
    with pytest.raises(OSError, match="Broken pipe"):
        ends[0].send(encode(Frame({})))


def test_tensors_are_views_of_what_was_received(ends):
    """Numbers are not copied out of the buffer, and begin where a device likes it."""
    for _ in range(2):
        tensors = {"a": np.arange(3, dtype=np.int8), "b": np.arange(5.0)}
        ends[0].send(encode(Frame({}, tensors)))
    frames = ends[1].receive()
    assert len(frames) == 2
    for array in itertools.chain(*(frame.tensors.values() for frame in frames)):
        assert not array.flags.owndata
        assert array.ctypes.data % 16 == 0


@pytest.mark.parametrize("size", [1, 15, 16, 17, 40, 1 << 20])
def test_frames_that_come_together_are_told_apart(ends, size):
    """Two frames are two wherever the stream is cut, and then comes the end."""
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


def test_rows_that_do_not_lie_together_are_sent_as_they_look(ends):
    """A tensor with steps between its values crosses as its values."""
    rows = np.arange(12.0).reshape(3, 4)[:, ::2]
    ends[0].send(encode(Frame({}, {"rows": rows})))
    np.testing.assert_array_equal(ends[1].receive()[0].tensors["rows"], rows)
