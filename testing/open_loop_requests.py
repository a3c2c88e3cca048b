"""Requests of the load generator, their outcomes, and times of arrival."""

import json
import random
from dataclasses import dataclass
from enum import StrEnum

_OK = 200


class End(StrEnum):
    """How a request ended for its client."""

    ANSWERED = "answered"
    BROKEN = "connection lost"
    DISCONNECTED = "disconnected"
    OPEN = "never answered"


@dataclass(frozen=True, slots=True)
class Request:
    """A request that is due `at_s` seconds after the start.

    `expected` is the JSON of the right answer, None if any is right; `status` is that
    of a good answer. `headers` are whole lines. The client pauses for `pause_s` in the
    middle of the body, and closes the connection `disconnect_s` after it has sent it.
    `tag` sorts outcomes.
    """

    at_s: float
    body: bytes = b""
    expected: object = None
    headers: str = ""
    path: str = "/predict"
    pause_s: float = 0.0
    disconnect_s: float | None = None
    tag: str = ""
    content_type: str = "application/json"
    status: int = _OK

    def head(self) -> bytes:
        """Return the request line and the headers."""
        method = "POST" if self.body else "GET"
        text = (
            f"{method} {self.path} HTTP/1.1\r\nHost: localhost\r\n{self.headers}"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\n"
        )
        return f"{text}\r\n".encode()

    def is_right(self, status: int, body: bytes) -> bool:
        """Return whether this is the expected answer, or an error in JSON."""
        try:
            answer = json.loads(body)
        except ValueError:
            return False
        if status == _OK:
            return self.expected is None or answer == self.expected
        return isinstance(answer, dict) and isinstance(answer.get("error"), str)


@dataclass(slots=True)
class Outcome:
    """How a request ended; times are in seconds after the start."""

    request: Request
    sent_s: float
    ended_s: float = 0.0
    end: End = End.OPEN
    status: int = 0
    right: bool = False
    port: int = 0

    @property
    def latency_s(self) -> float:
        """Seconds from the moment the request was due."""
        return self.ended_s - self.request.at_s

    def is_good(self) -> bool:
        """Return whether it got the expected answer, or was to be disconnected."""
        if self.end is End.DISCONNECTED:
            return True
        return self.status == self.request.status and self.right


def rows_request(
    at_s: float, first: int, rows: int = 1, width: int = 4, headers: str = ""
) -> Request:
    """Return a request for an echoing model; a row's first value is its number."""
    instances = [[float(first + n)] + [0.5] * (width - 1) for n in range(rows)]
    body = json.dumps({"instances": instances}).encode()
    return Request(at_s, body, {"predictions": instances}, headers)


def poisson(rate: float, seconds: float, seed: int = 1) -> list[float]:
    """Return the times of independent arrivals, `rate` per second in the mean."""
    chance = random.Random(seed)
    times: list[float] = []
    at_s = chance.expovariate(rate)
    while at_s < seconds:
        times.append(at_s)
        at_s += chance.expovariate(rate)
    return times
