"""The requests of a soak: good, large, bad, slow, and dropped by the client."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus

from testing.open_loop_requests import Request, poisson, rows_request

_WEIGHTS = {"good": 70, "large": 5, "bad": 10, "slow": 5, "dropped": 10}
_LARGE_ROWS = 100
# Blanks behind the rows: a worker decodes bodies of this size in a thread.
_FILLER = b" " * (64 << 10)
_LONGEST_PAUSE_S = 1.5
_LONGEST_WAIT_S = 0.03
# Single precision represents all integers up to it.
_NUMBERS = 1 << 24


def requests(rate: float, seconds: float, seed: int) -> Iterator[Request]:
    """Yield a mix of `rate` requests/s, each with different rows."""
    chance = random.Random(seed)  # noqa: S311 # not a secret
    kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    number = 0
    for at_s in poisson(rate, seconds, seed):
        (kind,) = chance.choices(kinds, weights)
        rows = _LARGE_ROWS if kind == "large" else 1
        number = (number + rows) % (_NUMBERS - rows)
        request = rows_request(at_s, number, rows)
        if kind == "bad":
            bodies = (request.body[:-3], json.dumps({"instances": [[1.0]]}).encode())
            status = HTTPStatus.BAD_REQUEST
            request = replace(request, body=chance.choice(bodies), status=status)
        elif kind == "large":
            request = replace(request, body=request.body + _FILLER)
        elif kind == "slow":
            request = replace(request, pause_s=chance.uniform(0, _LONGEST_PAUSE_S))
        elif kind == "dropped":
            wait_s = chance.uniform(0, _LONGEST_WAIT_S)
            request = replace(request, disconnect_s=wait_s)
        yield request


_FIRST = rows_request(0, 0)
SLOW_AND_LARGE = replace(_FIRST, body=_FIRST.body + _FILLER, pause_s=0.3)
