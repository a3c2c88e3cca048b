"""TensorFlow Serving's strings in JSON: text, or {"b64": "..."} for bytes.

An array of strings has dtype object and holds bytes; text is UTF-8.
"""

import binascii
from typing import Any

import numpy as np

from app.engines.base import Array

_KEY = "b64"
# TensorFlow Serving writes outputs whose name ends so as b64, and others as text.
_BYTES_SUFFIX = "_bytes"


def is_b64(value: Any) -> bool:
    """Return whether a JSON value is an object whose only key is b64, a string."""
    return (
        isinstance(value, dict)
        and value.keys() == {_KEY}
        and isinstance(value[_KEY], str)
    )


def to_bytes(value: Any) -> bytes:
    """Return the bytes of one JSON string or b64 object.

    Base64 is the standard alphabet; whitespace and missing padding are accepted.

    Raises:
        ValueError: malformed base64.
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
    """Return the strings of the output `name` as nested lists for JSON.

    The name decides between text and b64. Bytes that are not UTF-8 are always b64, as
    JSON can't hold them.
    """
    write = b64 if name.endswith(_BYTES_SUFFIX) else from_bytes
    leaves = np.array([write(value) for value in array.ravel().tolist()], object)
    return leaves.reshape(array.shape).tolist()


def from_bytes(value: bytes) -> Any:
    """Return UTF-8 as text, and other bytes as b64."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return b64(value)


def b64(value: bytes) -> dict[str, str]:
    """Return the b64 object of bytes."""
    return {_KEY: binascii.b2a_base64(value, newline=False).decode()}
