"""What a head asks for: protocol, model and time; found once for equal heads."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from werkzeug.http import parse_options_header

from app.access.allowed_origins import AllowedOrigins
from app.access.rights import key_of
from app.call import JSON, Head
from app.errors import BadInput, BasketError
from app.protocols.protocol import Protocol
from app.repository.routing import Target

# Types of bodies that are no rows in JSON; all others may be, as in TensorFlow Serving.
_OTHER_TYPES = ("application/x-npy", "multipart/form-data")


class Asks:
    """What a head asks for; `protocol` (a Protocol) is None for what Flask answers.

    `error` is what is wrong with the head of a call that predicts. `timeout_s` is the
    time it may take. `client_key` tells clients apart in the queue. `lines` are header
    lines of each reply. `is_plain` if the body may be rows in JSON and the answer has
    to be. Until `allowed_until`, on the monotonic clock, a call with this head that
    comes in at the address `allowed_at` has the right to be answered.
    """

    __slots__ = (
        "allowed_at",
        "allowed_until",
        "client_key",
        "encoding",
        "error",
        "is_plain",
        "lines",
        "max_body_bytes",
        "mimetype",
        "protocol",
        "target",
        "timeout_s",
    )

    def __init__(
        self,
        head: Head,
        limit_ms: int,
        max_body_bytes: int,
        origins: AllowedOrigins | None = None,
    ) -> None:
        """Look at a head for what all calls have; one may take `limit_ms`."""
        headers = head.headers
        self.max_body_bytes = max_body_bytes
        self.mimetype = mimetype_of(headers.get("content-type", ""))
        self.encoding = headers.get("content-encoding")
        self.is_plain = self._may_be_plain(headers)
        # The key comes first: its bearer could choose a new X-Client-Id for each call.
        self.client_key = key_of(headers) or headers.get("x-client-id", "")
        self.lines = "" if origins is None else origins.lines(head)
        self.allowed_at = ""
        self.allowed_until = -math.inf
        self.protocol: Any = None
        self.target = Target()
        self.timeout_s = limit_ms / 1000
        self.error: BasketError | None = None
        if head.method == "POST":
            try:
                self.timeout_s = _timeout_s(headers, limit_ms)
            except BadInput as error:
                self.error = error.with_traceback(None)

    def find(self, head: Head, protocols: Sequence[Protocol]) -> None:
        """Find the protocol of a POST, and the model that it names."""
        if head.method != "POST":
            return
        for protocol in protocols:
            try:
                target = protocol.find(head)
            except BadInput as error:
                self.protocol = protocol
                self.error = error.with_traceback(None)
                return
            if target is not None:
                self.protocol = protocol
                self.set_target(head, target)
                return

    def set_target(self, head: Head, target: Target) -> None:
        """Set the model; calls of the same client are routed to the same version."""
        get = head.headers.get
        client = get("x-client-id") or get("authorization")
        self.target = target._replace(client=client)

    def _may_be_plain(self, headers: Mapping[str, str]) -> bool:
        return (
            self.encoding is None
            and self.mimetype not in _OTHER_TYPES
            and not self.mimetype.startswith(("image/", "application/cloudevents"))
            and "npy" not in headers.get("accept", "").lower()
            and "ce-specversion" not in headers
        )


def mimetype_of(content_type: str) -> str:
    """Return a Content-Type in lower case, without its parameters."""
    if content_type == JSON:
        return content_type
    return parse_options_header(content_type)[0].lower()


def _timeout_s(headers: Mapping[str, str], limit_ms: int) -> float:
    """Return the request's own timeout, which may only shorten the server's.

    Raises:
        BadInput: it is no number of milliseconds.
    """
    text = headers.get("x-request-timeout-ms")
    if text is None:
        return limit_ms / 1000
    significant = text.lstrip("0")
    if not text.isascii() or not significant.isdigit():
        raise BadInput(
            "X-Request-Timeout-Ms: expected a whole number of ms, 1 or more, given "
            f"{text[:40]!r}"
        )
    # Shortened, as Python takes no more than 4300 digits.
    return min(int(significant[:18]), limit_ms) / 1000
