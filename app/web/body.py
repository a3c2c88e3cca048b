"""Read a request's whole body over WSGI, and what Flask's routes read in it."""

from collections.abc import Mapping
from typing import Any

from flask import request

from app.codec import json_text
from app.codec.compression import decompress
from app.errors import BadInput, TooLarge, TooSlow

# A stream may reserve as much for each read, and give less.
_READ_BYTES = 1 << 20
# Of a body when it is unpacked; what is read here has a few names.
_MAX_UNPACKED_BYTES = 1 << 20


def read_object(limit_bytes: int, blank: bytes = b"{}") -> dict[str, Any]:
    """Return the JSON object in the body of Flask's request.

    `blank` stands for a body without any.

    Raises:
        BadInput: it is none.
        BasketError: the body can't be read or unpacked.
    """
    sent = read_body(request.environ, limit_bytes)
    encoding = request.headers.get("Content-Encoding", "")
    text = decompress(sent, encoding, min(limit_bytes, _MAX_UNPACKED_BYTES))
    with json_text.opened_whole(text if text.strip() else blank) as value:
        if not isinstance(value, dict):
            raise BadInput("the body: expected nothing or a JSON object")
        return value


def read_body(environ: Mapping[str, Any], limit_bytes: int) -> bytes:
    """Return the body from `wsgi.input`, as it was sent.

    Raises:
        TooLarge: more than the limit.
        BadInput: truncated, or malformed chunks.
        TooSlow: it did not arrive within the body timeout.
    """
    try:
        size = int(environ.get("CONTENT_LENGTH") or 0)
        left = size
        if not size and environ.get("wsgi.input_terminated"):
            # The size of chunks is not known.
            left = limit_bytes + 1
        parts = []
        while left and size <= limit_bytes:
            part = environ["wsgi.input"].read(min(left, _READ_BYTES))
            if not part:
                break
            parts.append(part)
            left -= len(part)
        body = b"".join(parts)
        if len(body) < size <= limit_bytes:
            raise ValueError(f"{len(body)} bytes of {size} came")
    except TimeoutError:
        raise TooSlow("the body has not come in time") from None
    except Exception as error:  # each server raises its own for a malformed body
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"the body can't be read: {reason[:200]}") from None
    if max(size, len(body)) > limit_bytes:
        raise TooLarge(f"the body is larger than {limit_bytes} bytes")
    return body
