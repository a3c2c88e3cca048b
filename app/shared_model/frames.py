"""The wire format between web workers and model processes.

A frame is a fixed header, JSON, and the raw bytes of its tensors. Nothing is pickled.
Large tensors are sent from their own memory; all are received as views of a buffer.
"""

import json
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import orjson

from app.engines.base import Array, Tensors
from app.shared_model.json_values import plain

# Magic number, bytes of JSON, bytes of tensors.
_HEADER = struct.Struct("<4sIQ")
HEADER_BYTES = _HEADER.size
_MAGIC = b"BSK1"
# JSON is padded with spaces, so that tensors begin at multiples of this.
_ALIGNMENT = 16
# A frame with tensors of up to so many bytes is copied into one buffer.
_COPIED_BYTES = 4096
_STRINGS = "O"
_DTYPE = re.compile(r"[<>|][biufcV][1-9][0-9]{0,3}")
_LENGTH = np.dtype("<u4")
Buffer: TypeAlias = bytes | memoryview


class Frame(NamedTuple):
    """JSON values by name, and tensors; arrays of strings hold bytes.

    What is sent may have dataclasses and NamedTuples among the values, as
    `json_values` converts them.
    """

    meta: Mapping[str, Any]
    tensors: Tensors = MappingProxyType({})


def encode(frame: Frame) -> list[Buffer]:
    """Return the buffers of an encoded frame.

    Raises:
        TypeError: an array of strings holds a value that is not bytes.
    """
    heads: list[tuple[str, str, tuple[int, ...]]] = []
    buffers: list[Buffer] = []
    size = 0
    for name, array in frame.tensors.items():
        strings = array.dtype.hasobject
        heads.append((name, _STRINGS if strings else array.dtype.str, array.shape))
        for buffer in _strings(array) if strings else (_bytes_of(array),):
            buffers += (buffer, bytes(-len(buffer) % _ALIGNMENT))
            size += _aligned(len(buffer))
    text = _to_json({**frame.meta, "tensors": heads})
    text += b" " * (-(HEADER_BYTES + len(text)) % _ALIGNMENT)
    buffers.insert(0, _HEADER.pack(_MAGIC, len(text), size) + text)
    if size <= _COPIED_BYTES:
        return [b"".join(buffers)]
    return [buffer for buffer in buffers if buffer]


def _bytes_of(array: Array) -> Buffer:
    if array.nbytes <= _COPIED_BYTES:
        return array.tobytes()
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data


def _strings(array: Array) -> tuple[Buffer, bytes]:
    """Return the lengths of all strings, and the strings concatenated."""
    items: list[Any] = array.reshape(-1).tolist()
    lengths = np.fromiter(map(len, items), _LENGTH, len(items))
    return _bytes_of(lengths), b"".join(items)


def _to_json(value: Any) -> bytes:
    try:
        return orjson.dumps(value, plain)
    except TypeError:
        # Surrogates, which can be in a path, are encoded by the slower encoder only.
        return json.dumps(value, default=plain).encode()


def _from_json(text: bytes | memoryview) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        return json.loads(bytes(text))


def sizes(header: bytes | memoryview, begin: int = 0) -> tuple[int, int]:
    """Return the bytes of header and JSON, and of the whole frame at `begin`.

    Raises:
        ValueError: no frame begins there.
    """
    magic, text_size, tensors_size = _HEADER.unpack_from(header, begin)
    if magic != _MAGIC:
        raise ValueError("this is no frame")
    head_size = HEADER_BYTES + text_size
    return head_size, head_size + tensors_size


def decode(frame: memoryview, head_size: int) -> Frame:
    """Return the frame of a whole buffer; its tensors are views of the buffer.

    Raises:
        Exception: the frame is malformed.
    """
    meta = _from_json(frame[HEADER_BYTES:head_size])
    heads = meta.pop("tensors")
    return Frame(meta, dict(_arrays(heads, frame[head_size:])) if heads else {})


def _arrays(
    heads: Sequence[Sequence[Any]], data: memoryview
) -> Iterator[tuple[str, Array]]:
    """Yield the tensors as views of `data`; strings are copied.

    Raises:
        ValueError: the data is too short, or a head is malformed.
    """
    for name, kind, shape in heads:
        strings = kind == _STRINGS
        dtype = _LENGTH if strings else _dtype(kind)
        if min(shape, default=0) < 0:
            raise ValueError("a negative size")
        count = math.prod(shape)
        array = np.frombuffer(data, dtype, count) if count else np.empty(0, dtype)
        data = data[_aligned(array.nbytes) :]
        if strings:
            array, size = _split(data, array)
            data = data[_aligned(size) :]
        yield name, array.reshape(shape)


# Bounded, because the peer chooses the dtypes.
@lru_cache(maxsize=64)
def _dtype(kind: str) -> np.dtype[Any]:
    if not _DTYPE.fullmatch(kind):
        raise ValueError("no such dtype")
    return np.dtype(kind)


def _split(data: memoryview, lengths: Array) -> tuple[Array, int]:
    """Return the concatenated strings of these lengths, and their bytes in all."""
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
