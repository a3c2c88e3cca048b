"""Frames between web workers and model processes."""

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

from app.shared_model.wire import Connection, WireError

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
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
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
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(
            target=lambda: (Connection(ours).send(meta, tensors), ours.close())
        )
        sender.start()
        data = b"".join(iter(lambda: theirs.recv(1 << 16), b""))
        sender.join()
    return data


def _received(data):
    """What comes of bytes, after which the other end closes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=lambda: (ours.sendall(data), ours.close()))
        sender.start()
        try:
            return Connection(theirs).receive()
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
    step = SimpleNamespace(
        sendmsg=lambda buffers: sock.send(b"".join(map(bytes, buffers))[:7])
    )
    tensors = {"x": np.arange(9.0), "s": np.array([b"one", b"", b"three"], object)}
    Connection(step).send({"a": 1}, tensors)
    frame = ends[1].receive()
    assert frame.meta == {"a": 1}
    for name, array in tensors.items():
        np.testing.assert_array_equal(frame.tensors[name], array)


def test_a_frame_larger_than_any_buffer_crosses(ends):
    """16 MiB cross whole, although no socket's buffer takes them at once."""
    picture = np.random.default_rng(0).integers(0, 255, (4, 1 << 20), np.int32)
    sender = threading.Thread(target=ends[0].send, args=({}, {"rows": picture}))
    sender.start()
    np.testing.assert_array_equal(ends[1].receive().tensors["rows"], picture)
    sender.join()


def test_tensors_are_views_of_what_was_received(ends):
    """Numbers are not copied out of the buffer, and begin where a device likes it."""
    ends[0].send({}, {"a": np.arange(3, dtype=np.int8), "b": np.arange(5.0)})
    tensors = ends[1].receive().tensors
    for array in tensors.values():
        assert not array.flags.owndata
        assert array.ctypes.data % 16 == 0


def test_frames_that_come_together_are_told_apart(ends):
    """Two frames that one read brings are two frames, and then comes the end."""
    for number in (1, 2):
        ends[0].send({"number": number}, {"x": np.array([number])})
    ends[0].close()
    for number in (1, 2):
        frame = ends[1].receive()
        assert (frame.meta["number"], frame.tensors["x"].tolist()) == (number, [number])
    assert ends[1].receive() is None


def test_rows_that_do_not_lie_together_are_sent_as_they_look(ends):
    """A tensor with steps between its values crosses as its values."""
    rows = np.arange(12.0).reshape(3, 4)[:, ::2]
    ends[0].send({}, {"rows": rows})
    np.testing.assert_array_equal(ends[1].receive().tensors["rows"], rows)
