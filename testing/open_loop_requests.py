"""What an open loop sends and what becomes of it: requests, outcomes, arrivals."""

import json
import random
import time
from dataclasses import dataclass, field
from enum import StrEnum

_OK = 200


class End(StrEnum):
    """How a request ended, as its client saw it."""

    ANSWERED = "answered"
    BROKEN = "connection lost"
    HUNG_UP = "hung up"
    OPEN = "never answered"


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent, `at_s` seconds after the start.

    `expected` is the JSON that a 200 has to carry; None: anything. `headers` are whole
    lines. The body stops half way for `pause_s`; `hang_up_s` after it was sent the
    client closes the connection. `tag` is for whoever sorts the outcomes.
    """

    at_s: float
    body: bytes = b""
    expected: object = None
    headers: str = ""
    path: str = "/predict"
    pause_s: float = 0.0
    hang_up_s: float | None = None
    tag: str = ""

    def head(self) -> bytes:
        method = "POST" if self.body else "GET"
        text = (
            f"{method} {self.path} HTTP/1.1\r\nHost: basket\r\n{self.headers}"
            f"Content-Type: application/json\r\nContent-Length: {len(self.body)}\r\n"
        )
        return f"{text}\r\n".encode()

    def is_right(self, status: int, body: bytes) -> bool:
        """Whether this is its own answer, or else an error in JSON."""
        try:
            told = json.loads(body)
        except ValueError:
            return False
        if status == _OK:
            return self.expected is None or told == self.expected
        return isinstance(told, dict) and isinstance(told.get("error"), str)


@dataclass(slots=True)
class Outcome:
    """What became of a request; times are seconds after the start."""

    request: Request
    sent_s: float
    ended_s: float = 0.0
    end: End = End.OPEN
    status: int = 0
    right: bool = False
    port: int = 0

    @property
    def latency_s(self) -> float:
        return self.ended_s - self.request.at_s

    def is_good(self) -> bool:
        """Answered with 200 and its own rows."""
        return self.status == _OK and self.right


@dataclass
class Cost:
    """What the generator itself took: seconds of processor, and of time."""

    cpu_s: float = 0.0
    seconds: float = 0.0
    _began: tuple[float, float] = field(default=(0.0, 0.0), repr=False)

    def __enter__(self) -> "Cost":
        self._began = time.process_time(), time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        cpu_s, at_s = self._began
        self.cpu_s += time.process_time() - cpu_s
        self.seconds += time.monotonic() - at_s


def rows_request(
    at_s: float, first: int, rows: int = 1, width: int = 4, headers: str = ""
) -> Request:
    """Rows for an echoing model; the first value is the row's own number."""
    instances = [[float(first + n)] + [0.5] * (width - 1) for n in range(rows)]
    body = json.dumps({"instances": instances}).encode()
    return Request(at_s, body, {"predictions": instances}, headers)


def even(rate: float, seconds: float) -> list[float]:
    """Times of arrival, `rate` in each second at even distances."""
    return [n / rate for n in range(int(rate * seconds))]


def poisson(rate: float, seconds: float, seed: int = 1) -> list[float]:
    """Times of arrival of clients that know nothing of each other."""
    chance = random.Random(seed)
    times: list[float] = []
    at_s = chance.expovariate(rate)
    while at_s < seconds:
        times.append(at_s)
        at_s += chance.expovariate(rate)
    return times
