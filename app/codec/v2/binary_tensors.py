"""Triton's binary tensor extension: the bytes behind the JSON, both ways.

Tensors follow each other without padding, little-endian, in C order. A string is its
length in 4 bytes, then its bytes. Nothing is allocated by a size that a client claims,
and arrays of numbers are views.
"""

import math

import numpy as np

from app.codec.fit import of_bytes
from app.codec.v2.datatypes import datatype_of
from app.engines.base import Array, TensorSpec
from app.errors import BadInput

_LENGTH_BYTES = 4


class Tail:
    """The bytes behind the JSON, which the inputs take one after another."""

    def __init__(self, data: memoryview) -> None:
        """Start at the first byte."""
        self._data = data
        self._taken = 0

    def take(self, size: int, place: str) -> memoryview:
        """Return the next `size` bytes.

        Raises:
            BadInput: fewer are left.
        """
        left = len(self._data) - self._taken
        if size > left:
            raise BadInput(
                f"{place}: binary_data_size is {size}, and {left} bytes are left in "
                "the body"
            )
        begin = self._taken
        self._taken += size
        return self._data[begin : self._taken]

    def finish(self) -> None:
        """Check that all bytes are taken.

        Raises:
            BadInput: some are not.
        """
        if self._taken != len(self._data):
            raise BadInput(
                f"{len(self._data)} bytes follow the JSON, and the inputs take "
                f"{self._taken} of them"
            )


def read(data: memoryview, spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    """Return an input's values as an array of `shape`, the rows first; a view.

    Raises:
        BadInput: more or fewer values than the shape has, or malformed ones.
        Unsupported: the protocol has no datatype for the dtype.
    """
    place = f"input {spec.name!r}"
    if spec.dtype.kind != "O":
        return of_bytes(data, spec, shape, place, datatype_of(spec.dtype))
    count = math.prod(shape)
    strings = _strings(data, count, place)
    if len(strings) != count:
        given = "more" if len(strings) > count else len(strings)
        raise BadInput(
            f"{place}: shape {list(shape)} is {count} strings, given {given}"
        )
    return np.array(strings, object).reshape(shape)


def read_row(data: memoryview, spec: TensorSpec) -> Array:
    """Return one row of an input whose bytes are the whole body.

    A string stands without its length.

    Raises:
        BadInput: the number of bytes does not determine the row's shape, or is wrong.
        Unsupported: the protocol has no datatype for the dtype.
    """
    place = f"a body without JSON is one row of input {spec.name!r}"
    free = spec.shape.count(None)
    fixed = math.prod(size for size in spec.shape if size is not None)
    if spec.dtype.kind == "O":
        if free or fixed != 1:
            raise BadInput(f"{place}, and {spec.shape_text()} is not one string")
        return np.array([bytes(data)], object).reshape(1, *spec.shape)
    if spec.any_rank:
        raise BadInput(f"{place}, and its shape is not known: send JSON")
    if free > 1:
        raise BadInput(f"{place}, and {spec.shape_text()} has several free sizes")
    rest = len(data) // max(fixed * spec.dtype.itemsize, 1)
    shape = [rest if size is None else size for size in spec.shape]
    return read(data, spec, (1, *shape))


def write(array: Array) -> bytes | memoryview:
    """Return an output's bytes; a view of the array if it is contiguous numbers."""
    if array.dtype.kind == "O":
        return b"".join(
            len(value).to_bytes(_LENGTH_BYTES, "little") + value
            for value in array.ravel().tolist()
        )
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return plain.reshape(-1).view(np.uint8).data


def _strings(data: memoryview, count: int, place: str) -> list[bytes]:
    """Return the strings in the bytes, at most `count` + 1."""
    values: list[bytes] = []
    at = 0
    while at < len(data) and len(values) <= count:
        left = len(data) - at - _LENGTH_BYTES
        size = int.from_bytes(data[at : at + _LENGTH_BYTES], "little")
        if left < 0:
            raise BadInput(
                f"{place}: string {len(values)} begins with a length of "
                f"{_LENGTH_BYTES} bytes, and {left + _LENGTH_BYTES} are left"
            )
        if size > left:
            raise BadInput(
                f"{place}: string {len(values)} has {size} bytes by its length, and "
                f"{left} are left"
            )
        at += _LENGTH_BYTES + size
        values.append(bytes(data[at - size : at]))
    return values
