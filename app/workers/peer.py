"""What a connection's requests have told of who sends them."""

from dataclasses import dataclass, field
from typing import Any

# Longer ones may be beyond what the parser allows.
_MOST_DIGITS = 9


@dataclass(slots=True)
class Header:
    """A header, and what became of it.

    Of its Content-Length `begin` ends before the digits and `end` goes on behind them,
    and among the parsed headers it is at `length_at`. Where that is None, `begin` is
    all.
    """

    begin: bytes
    end: bytes
    length_at: int | None
    # A request's attributes, and the application's environment but for what is of one
    # request alone.
    parsed: dict[str, Any]
    environ: dict[str, Any] = field(default_factory=dict)

    def length_in(self, sent: bytes) -> bytes | None:
        """The digits of the length in a header that is this one but for them.

        Empty where neither has a length; None: it is another.
        """
        if self.length_at is None:
            return b"" if sent == self.begin else None
        if not (sent.startswith(self.begin) and sent.endswith(self.end)):
            return None
        digits = sent[len(self.begin) : -len(self.end)]
        return digits if digits.isdigit() and len(digits) <= _MOST_DIGITS else None


@dataclass(slots=True)
class Peer:
    """`is_trusted`: whether it is a proxy to be believed; None: not known yet."""

    is_trusted: bool | None = None
    last_header: Header | None = None
