"""Strings in JSON, as TensorFlow Serving has them: text, or {"b64": "..."} for bytes.

In arrays they are bytes, in arrays of dtype object; text is UTF-8.
"""

import binascii
from typing import Any

import numpy as np

from app.engines.base import Array

_KEY = "b64"
# TensorFlow Serving's sign for outputs that are bytes and not text.
_BYTES_SUFFIX = "_bytes"


def is_b64(value: Any) -> bool:
    """Say whether a JSON value is an object with b64 and nothing else, a string."""
    return (
        isinstance(value, dict)
        and value.keys() == {_KEY}
        and isinstance(value[_KEY], str)
    )


def to_bytes(value: Any) -> bytes:
    """The bytes of one JSON value.

    Base64 is the standard alphabet; blanks in it and missing padding do not matter.

    Raises:
        ValueError: bad base64.
        TypeError: neither text nor a b64 object.
    """
    if isinstance(value, str):
        return value.encode()
    if not is_b64(value):
        raise TypeError("neither text nor a b64 object")
    text = "".join(value[_KEY].split())
    if "=" not in text:
        text += "=" * (-len(text) % 4)
    if len(text) % 4:
        raise ValueError("incorrect padding")
    return binascii.a2b_base64(text, strict_mode=True)


def to_json(array: Array, name: str) -> Any:
    """The strings of the output `name` as nested lists for JSON.

    The name decides between text and b64. A string that is no UTF-8 is written as
    b64 under any name, as JSON can't hold it.
    """
    write = _b64 if name.endswith(_BYTES_SUFFIX) else _text
    leaves = np.empty(array.size, object)
    leaves[:] = [write(value) for value in array.ravel().tolist()]
    return leaves.reshape(array.shape).tolist()


def _text(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _b64(value)


def _b64(value: bytes) -> dict[str, str]:
    return {_KEY: binascii.b2a_base64(value, newline=False).decode()}
