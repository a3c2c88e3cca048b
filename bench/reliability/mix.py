"""The requests of a soak: good, large, bad, slow, and dropped by the client."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus

from testing.open_loop_requests import End, Outcome, Request, poisson, rows_request

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
        yield _changed(rows_request(at_s, number, rows), kind, chance)


def is_as_promised(one: Outcome) -> bool:
    """Return whether a request of the mix ended as its kind has to."""
    if one.request.tag == "bad":
        return one.status == HTTPStatus.BAD_REQUEST and one.right
    if one.request.tag == "dropped" and one.end is End.DISCONNECTED:
        return True
    return one.is_good()


def large(request: Request) -> Request:
    """Return the request with a body that the worker decodes in a thread."""
    return replace(request, body=request.body + _FILLER, tag="large")


def _changed(request: Request, kind: str, chance: random.Random) -> Request:
    if kind == "bad":
        bodies = (request.body[:-3], json.dumps({"instances": [[1.0]]}).encode())
        return replace(request, body=chance.choice(bodies), tag=kind)
    if kind == "large":
        return large(request)
    if kind == "slow":
        pause_s = chance.uniform(0, _LONGEST_PAUSE_S)
        return replace(request, pause_s=pause_s, tag=kind)
    if kind == "dropped":
        wait_s = chance.uniform(0, _LONGEST_WAIT_S)
        return replace(request, disconnect_s=wait_s, tag=kind)
    return replace(request, tag=kind)
