"""Put a server under load with wrk or simulated users, and check its answers."""

import asyncio
import contextlib
import random
import statistics
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from itertools import cycle

from bench.figures import THINK_S, Clients, Seen, Timing, percentile
from bench.prepared import Prepared
from testing import exchange, wrk
from testing.open_loop import client_of
from testing.open_loop_requests import End, Outcome, Request
from testing.server import Server, sum_of

PATH = "/predict"
_CHECK_EVERY_S, _TIMEOUT_S = 0.2, 60
# Rows and batches.
_Ran = tuple[float, float]


@dataclass(frozen=True)
class Target:
    """A running server that answers the requests of `prepared`.

    A Basket reports the rows and batches that it has run.
    """

    server: Server
    prepared: Prepared
    is_basket: bool = True

    def answer(self, place: int, connection: exchange.Connection) -> bytes | None:
        """Send request `place`, and return the body of its 200, or None."""
        headers = (("Content-Type", self.prepared.content_type),)
        body = self.prepared.bodies[place].read_bytes()
        try:
            answer = connection.ask(exchange.Request("POST", PATH, headers, body))
        except (OSError, exchange.NotHttp):
            connection.close()
            return None
        return answer.body if answer.status == HTTPStatus.OK else None

    def answers(self) -> bool:
        """Return whether the first request gets a 200."""
        with contextlib.closing(exchange.Connection(self.server.port)) as connection:
            return self.answer(0, connection) is not None

    def is_right(self, place: int, connection: exchange.Connection) -> bool:
        """Send request `place`, and return whether it gets the model's answer."""
        body = self.answer(place, connection)
        return body is not None and self.prepared.is_right(place, body)

    def ran(self) -> _Ran:
        """Return the rows and batches so far, zeros of another server."""
        if not self.is_basket:
            return 0.0, 0.0
        # Both of one answer: a batch may end between two.
        text = self.server.request("GET", "/metrics").body.decode()
        rows, batches = "basket_batch_rows_sum{", "basket_batch_rows_count{"
        return sum_of(text, rows), sum_of(text, batches)

    def mean_batch(self, before: _Ran) -> float | None:
        """Return the mean rows of the batches since `before`, None if not reported."""
        rows, batches = map(float.__sub__, self.ran(), before)
        return rows / batches if batches else None


def by_wrk(target: Target, clients: Clients, timing: Timing) -> Seen:
    """Drive a server with wrk, and check five answers per second beside it."""
    url, prepared = f"http://127.0.0.1:{target.server.port}{PATH}", target.prepared
    sent = url, prepared.bodies, prepared.content_type, clients.count
    wrk.drive(*sent, timing.warm_up_s)
    done = threading.Event()

    def check() -> list[bool]:
        places, right = cycle(range(len(prepared.bodies))), [first]
        while not done.wait(_CHECK_EVERY_S):
            right.append(target.is_right(next(places), one))
        return right

    # One connection: at the limit of connections a new one takes another's place.
    one = exchange.Connection(target.server.port, _TIMEOUT_S)
    with contextlib.closing(one), ThreadPoolExecutor() as pool:
        # Answered only after all that the warm-up has left in the queue.
        first, before = target.is_right(0, one), target.ran()
        checks = pool.submit(check)
        try:
            driven = wrk.drive(*sent, timing.measured_s)
        finally:
            done.set()
        right = checks.result()
    return Seen(
        **driven._asdict(),
        checked=len(right),
        wrong=right.count(False),
        batch_rows=target.mean_batch(before),
    )


def by_users(
    target: Target,
    clients: Clients,
    timing: Timing,
    keep: Callable[[Sequence[Outcome]], None] = lambda _: None,
) -> Seen:
    """Drive a server with users that may think, and check every answer.

    A request counts if it was sent after the warm-up, whenever its answer came. `keep`
    is called with the outcomes of those.
    """
    outcomes, before = asyncio.run(_simulate(target, clients, timing))
    keep(outcomes)
    answered = [each for each in outcomes if each.end is End.ANSWERED]
    good = [each for each in answered if each.status == HTTPStatus.OK]
    took_s = [each.ended_s - each.sent_s for each in good] or [0.0]
    return Seen(
        rate=len(good) / timing.measured_s,
        mean_s=statistics.fmean(took_s),
        p50_s=percentile(took_s, 50),
        p95_s=percentile(took_s, 95),
        p99_s=percentile(took_s, 99),
        errors=len(outcomes) - len(answered),
        not_2xx=len(answered) - len(good),
        checked=0 if target.prepared.expected is None else len(good),
        wrong=sum(not each.right for each in good),
        batch_rows=target.mean_batch(before),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known(Request):
    """Request `place`, whose answer is known but for rounding."""

    place: int
    prepared: Prepared

    def is_right(self, status: int, body: bytes) -> bool:
        return status != HTTPStatus.OK or self.prepared.is_right(self.place, body)


async def _simulate(
    target: Target, clients: Clients, timing: Timing
) -> tuple[list[Outcome], _Ran]:
    """Return the measured outcomes, and the rows and batches run before them."""
    prepared, end_s = target.prepared, sum(timing)
    kind = {"prepared": prepared, "content_type": prepared.content_type}
    requests = [
        _Known(0, body.read_bytes(), place=place, **kind)
        for place, body in enumerate(prepared.bodies)
    ]

    async def send(number: int) -> list[Outcome]:
        # The same think times for every server.
        chance = random.Random(number)  # noqa: S311
        outcomes: list[Outcome] = []
        # Of its own, so that each user has a connection: several workers share them.
        async with client_of(target.server.port) as client:
            while True:
                think_s = chance.uniform(*THINK_S) if clients.thinks else 0.0
                if client.now_s() + think_s >= end_s:
                    return outcomes
                await asyncio.sleep(think_s)
                request = requests[(number + len(outcomes)) % len(requests)]
                outcomes.append(await client.ask(request))

    async def read_batches() -> _Ran:
        await asyncio.sleep(timing.warm_up_s)
        return await asyncio.to_thread(target.ran)

    users = map(send, range(clients.count))
    before, *found = await asyncio.gather(read_batches(), *users)
    outcomes = [each for one in found for each in one]
    measured = [each for each in outcomes if timing.warm_up_s <= each.sent_s < end_s]
    return measured, before
