"""Frames on the socket between a web worker and a model process.

A frame is a fixed header, JSON, and the raw bytes of its tensors. Nothing is
pickled. Tensors go out from their own memory, and come in as views of the one buffer
that a frame was received into.
"""

import json
import math
import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.engines.base import Array, Tensors

# What each frame begins with, bytes of JSON, and bytes of tensors.
_HEADER = struct.Struct("<4sIQ")
_MAGIC = b"BSK1"
# The JSON is filled up with blanks, so that tensors begin at multiples of this.
_ALIGNMENT = 16
# What one read takes; a frame of a few rows comes whole.
_READ_BYTES = 1 << 16
# IOV_MAX of Linux.
_MOST_BUFFERS = 1024
_STRINGS = "O"
_DTYPE = re.compile(r"[<>|][biufcV][1-9][0-9]{0,3}")
_LENGTH = np.dtype("<u4")
# What comes of reading JSON and tensors that are not as they should be.
_UNREADABLE = (
    *(ValueError, TypeError, KeyError, AttributeError),
    *(OverflowError, RecursionError),
)


class WireError(Exception):
    """The other end sent what is no frame, or ended in the middle of one."""


@dataclass(frozen=True)
class Frame:
    """JSON values by name, and tensors; arrays of strings hold bytes."""

    meta: dict[str, Any]
    tensors: dict[str, Array] = field(default_factory=dict)


class Connection:
    """A stream of frames; used by one thread for each direction."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected socket."""
        self.sock = sock
        # What was read beyond the last frame.
        self._ahead = b""

    def send(self, meta: Mapping[str, Any], tensors: Tensors | None = None) -> None:
        """Write one frame.

        Raises:
            OSError: the other end has gone.
            TypeError: an array of strings holds something else than bytes.
        """
        _send_all(self.sock, _encode(meta, tensors or {}))

    def receive(self) -> Frame | None:
        """Wait for the next frame; None: the other end has closed.

        Raises:
            WireError: no frame.
            OSError: the connection is broken.
        """
        data = self._ahead or self.sock.recv(_READ_BYTES)
        if not data:
            return None
        while len(data) < _HEADER.size:
            data += self._more()
        magic, meta_size, size = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise WireError("this is no frame")
        end = _HEADER.size + meta_size + size
        self._ahead = data[end:]
        whole = memoryview(data)[:end] if len(data) >= end else self._rest(data, end)
        return _decode(whole[_HEADER.size :], meta_size)

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()

    def _more(self) -> bytes:
        data = self.sock.recv(_READ_BYTES)
        if not data:
            raise WireError("the other end closed within a frame")
        return data

    def _rest(self, begin: bytes, size: int) -> memoryview:
        try:
            whole = np.empty(size, np.uint8).data
        except (MemoryError, ValueError) as error:
            raise WireError(f"a frame of {size} bytes does not fit") from error
        whole[: len(begin)] = begin
        left = whole[len(begin) :]
        while left:
            count = self.sock.recv_into(left)
            if not count:
                raise WireError("the other end closed within a frame")
            left = left[count:]
        return whole


def _encode(meta: Mapping[str, Any], tensors: Tensors) -> list[bytes | memoryview]:
    """A frame as the buffers that it is made of."""
    heads: list[tuple[str, str, tuple[int, ...]]] = []
    buffers: list[bytes | memoryview] = []
    size = 0
    for name, array in tensors.items():
        strings = array.dtype.hasobject
        heads.append((name, _STRINGS if strings else array.dtype.str, array.shape))
        for buffer in _strings(array) if strings else [_bytes_of(array)]:
            padding = -len(buffer) % _ALIGNMENT
            buffers += [buffer, bytes(padding)] if padding else [buffer]
            size += len(buffer) + padding
    text = json.dumps({**meta, "tensors": heads}).encode()
    text += b" " * (-(_HEADER.size + len(text)) % _ALIGNMENT)
    return [_HEADER.pack(_MAGIC, len(text), size) + text, *buffers]


def _bytes_of(array: Array) -> memoryview:
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data


def _strings(array: Array) -> tuple[memoryview, bytes]:
    """The lengths of all strings, and the strings one behind the other."""
    items: list[Any] = array.reshape(-1).tolist()
    lengths = np.fromiter(map(len, items), _LENGTH, len(items))
    return _bytes_of(lengths), b"".join(items)


def _send_all(sock: socket.socket, buffers: list[bytes | memoryview]) -> None:
    sent = sock.sendmsg(buffers[:_MOST_BUFFERS])
    while True:
        done = 0
        while done < len(buffers) and sent >= len(buffers[done]):
            sent -= len(buffers[done])
            done += 1
        buffers = buffers[done:]
        if not buffers:
            return
        buffers[0] = memoryview(buffers[0])[sent:]
        sent = sock.sendmsg(buffers[:_MOST_BUFFERS])


def _decode(body: memoryview, meta_size: int) -> Frame:
    try:
        meta = json.loads(bytes(body[:meta_size]))
        heads = meta.pop("tensors")
        return Frame(meta, dict(_arrays(heads, body[meta_size:])))
    except _UNREADABLE as error:
        raise WireError(f"a frame that can't be read: {error}") from error


def _arrays(
    heads: Sequence[Sequence[Any]], data: memoryview
) -> Iterator[tuple[str, Array]]:
    """The tensors as views of `data`; strings are copied out of it.

    Raises:
        ValueError: the data is too short, or a head makes no sense.
    """
    for name, kind, shape in heads:
        strings = kind == _STRINGS
        if not strings and not _DTYPE.fullmatch(kind):
            raise ValueError("no such dtype")
        if any(size < 0 for size in shape):
            raise ValueError("a negative size")
        dtype = _LENGTH if strings else np.dtype(kind)
        count = math.prod(shape)
        array = np.frombuffer(data, dtype, count) if count else np.empty(0, dtype)
        data = data[_aligned(array.nbytes) :]
        if strings:
            array, size = _split(data, array)
            data = data[_aligned(size) :]
        yield name, array.reshape(shape)


def _split(data: memoryview, lengths: Array) -> tuple[Array, int]:
    """Strings that stand one behind the other, and how many bytes they have."""
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    size = ends[-1] if ends else 0
    if size > len(data):
        raise ValueError("strings longer than the data")
    array = np.empty(len(ends), object)
    begin = 0
    for place, end in enumerate(ends):
        array[place] = bytes(data[begin:end])
        begin = end
    return array, size


def _aligned(size: int) -> int:
    return size + -size % _ALIGNMENT
