"""Put a server under load with wrk or simulated users, and check its answers."""

import asyncio
import contextlib
import http.client
import random
import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench import wrk
from bench.figures import THINK_S, Clients, Seen, Timing, percentile
from bench.prepared import Prepared
from testing.open_loop import client_of
from testing.open_loop_requests import End, Outcome, Request
from testing.server import Server, metric_sum

PATH = "/predict"
_CHECK_EVERY_S = 0.2
# Rows and batches.
_Ran = tuple[float, float]


@dataclass(frozen=True)
class Target:
    """A running server that answers the requests of `prepared`.

    `batches` returns the rows and batches that its model has run so far, None if the
    server does not report them.
    """

    port: int
    prepared: Prepared
    batches: Callable[[], _Ran] | None = None

    @property
    def url(self) -> str:
        """The URL that is posted to."""
        return f"http://127.0.0.1:{self.port}{PATH}"

    def answers(self) -> bool:
        """Return whether the first request gets a 200."""
        with contextlib.closing(Checker(self)) as checker:
            return checker.send() is not None


def batches_of(server: Server) -> _Ran:
    """Return the rows and batches that Basket has run so far."""
    name = "basket_batch_rows"
    return metric_sum(server, f"{name}_sum"), metric_sum(server, f"{name}_count")


class Checker:
    """Sends the requests in rotation over one connection, and checks the answers.

    `checked` counts requests, `wrong` those without the model's answer.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._connection = http.client.HTTPConnection("127.0.0.1", target.port, 60)
        self.checked = self.wrong = 0

    def check(self) -> None:
        """Send the next request and compare its answer with the model's."""
        prepared = self._target.prepared
        place = self.checked % len(prepared.bodies)
        self.checked += 1
        answer = self.send(place)
        self.wrong += answer is None or not prepared.is_right(place, answer)

    def send(self, place: int = 0) -> bytes | None:
        """Return the body of the 200 that request `place` gets, or None."""
        prepared = self._target.prepared
        return self.post(prepared.bodies[place].read_bytes())

    def post(self, body: bytes) -> bytes | None:
        """Return the body of the 200 that a request with `body` gets, or None."""
        headers = {"Content-Type": self._target.prepared.content_type}
        try:
            self._connection.request("POST", PATH, body, headers)
            reply = self._connection.getresponse()
            content = reply.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return None
        return content if reply.status == http.client.OK else None

    def run(self, done: threading.Event) -> None:
        """Check five answers per second until `done` is set."""
        while not done.wait(_CHECK_EVERY_S):
            self.check()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def by_wrk(target: Target, clients: Clients, timing: Timing) -> Seen:
    """Drive a server with wrk, and check five answers per second beside it."""

    def drive(seconds: float) -> Seen:
        kind = target.prepared.content_type
        return wrk.drive(
            target.url, target.prepared.bodies, kind, clients.count, seconds
        )

    drive(timing.warm_up_s)
    checker = Checker(target)
    # Answered only after all that the warm-up has left in the queue.
    checker.check()
    before = target.batches() if target.batches else None
    done = threading.Event()
    checks = threading.Thread(target=checker.run, args=(done,))
    checks.start()
    try:
        seen = drive(timing.measured_s)
    finally:
        done.set()
        checks.join()
        checker.close()
    return replace(
        seen,
        checked=checker.checked,
        wrong=checker.wrong,
        batch_rows=_mean_batch(target, before),
    )


def _mean_batch(target: Target, before: _Ran | None) -> float | None:
    if before is None or target.batches is None:
        return None
    rows, batches = map(float.__sub__, target.batches(), before)
    return rows / max(batches, 1)


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
    good = [each for each in answered if each.status == http.client.OK]
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
        batch_rows=_mean_batch(target, before),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known(Request):
    """Request `place`, whose answer is known but for rounding."""

    place: int
    prepared: Prepared

    def is_right(self, status: int, body: bytes) -> bool:
        return status != http.client.OK or self.prepared.is_right(self.place, body)


async def _simulate(
    target: Target, clients: Clients, timing: Timing
) -> tuple[list[Outcome], _Ran | None]:
    """Return the measured outcomes, and the rows and batches run before them."""
    prepared = target.prepared
    requests = [
        _Known(
            *(0, body.read_bytes()),
            content_type=prepared.content_type,
            place=place,
            prepared=prepared,
        )
        for place, body in enumerate(prepared.bodies)
    ]
    end_s = timing.warm_up_s + timing.measured_s

    async def send(number: int) -> list[Outcome]:
        # The same think times for every server.
        chance = random.Random(number)  # noqa: S311
        outcomes: list[Outcome] = []
        # Of its own, so that each user has a connection: several workers share them.
        async with client_of(target.port) as client:
            while True:
                think_s = chance.uniform(*THINK_S) if clients.thinks else 0.0
                if client.now_s() + think_s >= end_s:
                    return outcomes
                await asyncio.sleep(think_s)
                request = requests[(number + len(outcomes)) % len(requests)]
                outcomes.append(await client.ask(request))

    async def read_batches() -> _Ran | None:
        await asyncio.sleep(timing.warm_up_s)
        return await asyncio.to_thread(target.batches) if target.batches else None

    users = map(send, range(clients.count))
    before, *found = await asyncio.gather(read_batches(), *users)
    outcomes = [each for one in found for each in one]
    measured = [each for each in outcomes if timing.warm_up_s <= each.sent_s < end_s]
    return measured, before
