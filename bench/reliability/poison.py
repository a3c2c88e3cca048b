"""Poison: the model raises on one row of several that arrive at once.

The model is a SavedModel with an assertion in its graph, so that TensorFlow fails the
batch and does not say which row it was.
"""

import asyncio
import math
import random
import tempfile
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

from bench.reliability.report import Report, tally
from bench.reliability.server import counted, with_client
from testing import poison_model
from testing.open_loop import Client
from testing.open_loop_requests import Outcome, rows_request
from testing.server import serving
from testing.simulated import GOOD

_AT_ONCE = 64
_RERUNS = "basket_reruns_total"
# Enough for all requests to arrive.
_TIMEOUT_MICROS = "2000000"


def poison(rounds: int = 200, app: str = GOOD, models: Path | None = None) -> Report:
    """Send bursts of 64 requests, with one poisoned row at random in each.

    `models` is a folder that has the model already; None: it is written.
    """
    with tempfile.TemporaryDirectory() as folder:
        if models is None:
            poison_model.write(Path(folder))
        with serving(
            f"--threads={_AT_ONCE + 8}",
            app=app,
            own_session=True,
            model_dir=str(models or folder),
            batch_timeout_micros=_TIMEOUT_MICROS,
        ) as server:
            outcomes, reruns = with_client(server, _measure, rounds)
    report = Report(
        "Poison",
        f"A SavedModel with tf.debugging.assert in its graph; {rounds} rounds of "
        f"{_AT_ONCE} requests at once, one of them marked: {tally(outcomes)}.",
    )
    report.all_good("sound rows that failed, marked ones that did not", outcomes)
    limit = 2 * math.ceil(math.log2(_AT_ONCE))
    # Without any, no row was poisoned.
    report.at_most("reruns of a batch, 2 log2 n", max(reruns) or math.inf, limit)
    return report


async def _measure(client: Client, rounds: int) -> tuple[list[Outcome], list[int]]:
    """Return all outcomes, and the reruns of each round."""
    chance = random.Random(1)  # noqa: S311 # not a secret
    outcomes: list[Outcome] = []
    reruns = []
    for number in range(rounds):
        first = number * _AT_ONCE + 1
        requests = [rows_request(0, first + place) for place in range(_AT_ONCE)]
        place = chance.randrange(_AT_ONCE)
        # The model raises on negative numbers.
        status = HTTPStatus.BAD_REQUEST
        requests[place] = replace(rows_request(0, -first - place), status=status)
        async with counted(client, _RERUNS) as grown:
            outcomes += await asyncio.gather(*map(client.ask, requests))
        reruns.append(grown[_RERUNS])
    return outcomes, reruns
