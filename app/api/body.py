"""A request's whole body."""

from typing import Protocol

from app.api.exchange import Environ, Exchange
from app.codec import compression
from app.errors import BadInput, TooLarge, TooSlow

# What one read asks for, once the first has not given all.
_READ_BYTES = 1 << 20


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


def read_body(exchange: Exchange, limit_bytes: int) -> bytes:
    """Read it, and unpack it where it comes compressed.

    Raises:
        TooLarge: more than the limit, as sent or unpacked.
        Unsupported: an unknown Content-Encoding.
        BadInput: cut off, or not what its Content-Encoding says.
        TooSlow: it has not come in time.
    """
    try:
        body = _received(exchange.environ, limit_bytes)
    except TimeoutError:
        raise TooSlow("the body has not come in time") from None
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"the body can't be read: {text[:200]}") from None
    encoding = exchange.header("Content-Encoding")
    return compression.decompress(body, encoding, limit_bytes) if encoding else body


def _received(environ: Environ, limit_bytes: int) -> bytes:
    stream = environ["wsgi.input"]
    length = environ.get("CONTENT_LENGTH")
    if length:
        size = int(length)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        body = _read(stream, size)
        if len(body) < size:
            raise ValueError(f"{len(body)} bytes of {size} came")
        return body
    if not environ.get("wsgi.input_terminated"):
        return b""
    body = _read(stream, limit_bytes + 1)
    if len(body) > limit_bytes:
        raise _too_large(limit_bytes)
    return body


def _read(stream: _Stream, size: int) -> bytes:
    """So many bytes, or what there is before the end."""
    part = stream.read(size)
    if len(part) in (0, size):
        return part
    parts, left = [part], size - len(part)
    while left and (part := stream.read(min(left, _READ_BYTES))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _too_large(limit_bytes: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit_bytes} bytes")
