"""What a connection's requests have told of who sends them."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Header:
    """A header as it was sent, and what became of it."""

    sent: bytes
    # A request's attributes, and the application's environment but for what is of one
    # request alone.
    parsed: dict[str, Any]
    environ: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Peer:
    """`is_trusted`: whether it is a proxy to be believed; None: not known yet."""

    is_trusted: bool | None = None
    last_header: Header | None = None
