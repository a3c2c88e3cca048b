"""Read a request's whole body over WSGI, as it was sent."""

from collections.abc import Mapping
from typing import Any, Protocol

from app.errors import BadInput, BasketError, TooLarge, TooSlow

# The size of each read after a first one that was short.
_READ_BYTES = 1 << 20


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_body(environ: Mapping[str, Any], limit_bytes: int) -> bytes:
    """Return the body from `wsgi.input`, as it was sent.

    Raises:
        TooLarge: more than the limit.
        BadInput: truncated, or malformed chunks.
        TooSlow: it did not arrive within the body timeout.
    """
    try:
        return _received(environ, limit_bytes)
    except TimeoutError:
        raise too_slow() from None
    except BasketError:
        raise
    except Exception as error:  # each server raises its own for a malformed body
        raise unreadable(getattr(error, "strerror", None) or str(error)) from None


def too_large(limit_bytes: int) -> TooLarge:
    """Return the error for a body beyond the limit."""
    return TooLarge(f"the body is larger than {limit_bytes} bytes")


def too_slow() -> TooSlow:
    """Return the error for a body that did not arrive in time."""
    return TooSlow("the body has not come in time")


def unreadable(reason: str) -> BadInput:
    """Return the error for a truncated or malformed body."""
    return BadInput(f"the body can't be read: {reason[:200]}")


def _received(environ: Mapping[str, Any], limit_bytes: int) -> bytes:
    stream = environ["wsgi.input"]
    length = environ.get("CONTENT_LENGTH")
    if length:
        size = int(length)
        if size > limit_bytes:
            raise too_large(limit_bytes)
        body = _read(stream, size)
        if len(body) < size:
            raise ValueError(f"{len(body)} bytes of {size} came")
        return body
    if not environ.get("wsgi.input_terminated"):
        return b""
    body = _read(stream, limit_bytes + 1)
    if len(body) > limit_bytes:
        raise too_large(limit_bytes)
    return body


def _read(stream: _Stream, size: int) -> bytes:
    """Return `size` bytes, or fewer if the body ends before."""
    part = stream.read(size)
    if len(part) in (0, size):
        return part
    parts, left = [part], size - len(part)
    while left and (part := stream.read(min(left, _READ_BYTES))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
