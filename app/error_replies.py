"""Replies to calls that failed: JSON, with the headers of their status."""

import logging

from app import telemetry
from app.call import Reply
from app.codec import compression, json_text
from app.errors import (
    BasketError,
    Forbidden,
    TooSlow,
    Unauthorized,
    Unavailable,
    UnknownEncoding,
)

_log = logging.getLogger(__name__)


def error_reply(error: BaseException, *, is_prediction: bool = False) -> Reply:
    """Return the reply to a failed call; log an unexpected error.

    The metrics count the reasons of predictions, which the caller flushes, and on all
    routes those of calls without the right to use them.
    """
    if not isinstance(error, BasketError):
        _log.error("unexpected error", exc_info=error)
        return _refusal("internal error; the server's log has more", 500)
    if is_prediction or isinstance(error, (Unauthorized, Forbidden)):
        telemetry.rejected(error.reason)
        if not is_prediction:
            telemetry.flush()
    lines = ""
    if isinstance(error, Unavailable):
        lines = f"Retry-After: {error.retry_after_s}\r\n"
    elif isinstance(error, TooSlow):
        # The rest of its body would be in the way of the next request.
        lines = "Connection: close\r\n"
    elif isinstance(error, Unauthorized):
        lines = "WWW-Authenticate: Bearer\r\n"
    elif isinstance(error, UnknownEncoding):
        lines = f"Accept-Encoding: {', '.join(compression.ENCODINGS)}\r\n"
    return _refusal(str(error), error.status, lines)


def _refusal(text: str, status: int, lines: str = "") -> Reply:
    return Reply(json_text.dumps({"error": text}), status=status, lines=lines)
