"""Poison: among requests that come at once, the model raises on one row.

The model is a SavedModel with an assertion in its graph, so that TensorFlow fails the
batch and says nothing of which row it was.
"""

import asyncio
import math
import random
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path

from bench.reliability import metrics
from bench.reliability.report import Report, tally
from bench.reliability.set_up import GOOD, with_client
from testing import poison_model
from testing.open_loop import Client
from testing.open_loop_requests import Outcome, Request, rows_request
from testing.server import serving

_AT_ONCE = 64
_MARKED = "marked"
# Long enough for all to come, and no longer than a full batch takes to form.
_TIMEOUT_MICROS = "2000000"


@dataclass(frozen=True)
class _Round:
    """One burst, and how often batches ran again for it."""

    outcomes: list[Outcome]
    reruns: int

    def wrong(self) -> list[Outcome]:
        """The sound rows that failed, and the marked ones that did not."""
        return [one for one in self.outcomes if not _is_as_promised(one)]


def poison(rounds: int = 200, marked: int = 1, app: str = GOOD) -> Report:
    """So many bursts of 64 requests, with so many marked at random in each."""
    with tempfile.TemporaryDirectory() as folder:
        poison_model.write(Path(folder))
        with serving(
            f"--threads={_AT_ONCE + 8}",
            app=app,
            own_session=True,
            model_dir=folder,
            batch_timeout_micros=_TIMEOUT_MICROS,
        ) as server:
            seen = with_client(server, partial(_measure, rounds=rounds, marked=marked))
    return _report(seen, marked)


async def _measure(client: Client, rounds: int, marked: int) -> list[_Round]:
    chance = random.Random(1)  # noqa: S311 # not a secret
    seen = []
    for number in range(rounds):
        before = await metrics.read(client)
        places = set(chance.sample(range(_AT_ONCE), marked))
        requests = [
            _request(number * _AT_ONCE + place + 1, is_marked=place in places)
            for place in range(_AT_ONCE)
        ]
        outcomes = await asyncio.gather(*map(client.ask, requests))
        after = await metrics.read(client)
        reruns = metrics.gained(before, after, "basket_reruns_total")
        seen.append(_Round(outcomes, reruns))
    return seen


def _request(number: int, *, is_marked: bool) -> Request:
    if is_marked:
        return replace(rows_request(0, -number), tag=_MARKED)
    return rows_request(0, number)


def _is_as_promised(one: Outcome) -> bool:
    if one.request.tag == _MARKED:
        return one.status == HTTPStatus.INTERNAL_SERVER_ERROR and one.right
    return one.is_good()


def _report(seen: list[_Round], marked: int) -> Report:
    report = Report("Poison")
    everyone = [one for each in seen for one in each.outcomes]
    report.notes += [
        f"A SavedModel with tf.debugging.assert in its graph; {len(seen)} rounds of "
        f"{_AT_ONCE} requests at once, {marked} of them marked: {tally(everyone)}."
    ]
    wrong = [one for each in seen for one in each.wrong()]
    report.promise(
        "sound rows that failed, marked ones that did not",
        "0",
        f"{len(wrong):,} of {len(everyone):,}",
        held=not wrong,
    )
    limit = 2 * marked * math.ceil(math.log2(_AT_ONCE))
    most = max(each.reruns for each in seen)
    report.promise(
        "reruns of a batch",
        f"<= 2 k log2 n = {limit}",
        f"at most {most}",
        held=0 < most <= limit,
    )
    return report
