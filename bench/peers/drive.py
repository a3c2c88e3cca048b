"""Puts a running server under a load, and says what its clients saw."""

import asyncio
import random
import statistics
import threading
from dataclasses import dataclass

from bench import wrk
from bench.peers.loads import Clients, Prepared
from bench.peers.plan import Timing
from bench.peers.running import Asker, Running
from bench.percentile import percentile
from testing.open_loop import Client, client_of
from testing.open_loop_requests import End, Outcome, Request

_THINK_S = (1.0, 3.0)
_LOOK_EVERY_S = 0.2
_OK = 200
# Rows and batches.
_Ran = tuple[float, float]


def by_wrk(server: Running, clients: Clients, timing: Timing) -> dict[str, float]:
    """Drive it with wrk, and look at an answer now and then; a Cell's figures."""

    def drive(seconds: float) -> wrk.Seen:
        prepared = server.prepared
        kind = prepared.load.content_type
        return wrk.drive(server.url, prepared.bodies, kind, clients.count, seconds)

    drive(timing.warm_up_s)
    asker = Asker(server)
    # Answered when all is done that the warm-up has left behind.
    asker.ask()
    done = threading.Event()
    looks = threading.Thread(target=_look, args=(asker, done))
    before = server.batches() if server.batches else None
    looks.start()
    try:
        seen = drive(timing.measured_s)
    finally:
        done.set()
        looks.join()
    figures: dict[str, float] = {
        "rate": seen.rate(),
        "mean_s": seen.mean_s,
        "p50_s": seen.p50_s,
        "p95_s": seen.p95_s,
        "p99_s": seen.p99_s,
        "errors": seen.errors,
        "not_2xx": seen.not_2xx,
        "asked": asker.asked,
        "wrong": asker.wrong,
    }
    return figures | _batch_rows(server, before)


def _batch_rows(server: Running, before: _Ran | None) -> dict[str, float]:
    """The mean batch since then, where the server says so."""
    if before is None or server.batches is None:
        return {}
    rows, batches = map(float.__sub__, server.batches(), before)
    return {"batch_rows": rows / max(batches, 1)}


def _look(asker: Asker, done: threading.Event) -> None:
    while not done.wait(_LOOK_EVERY_S):
        asker.ask()
    asker.close()


def by_users(server: Running, clients: Clients, timing: Timing) -> dict[str, float]:
    """Drive it with users that may think, and look at every answer.

    What was sent within the measurement counts, whenever its answer came.
    """
    outcomes, before = asyncio.run(_live(server, clients, timing))
    answered = [each for each in outcomes if each.end is End.ANSWERED]
    good = [each for each in answered if each.status == _OK]
    took = [each.ended_s - each.sent_s for each in good] or [0.0]
    figures: dict[str, float] = {
        "rate": len(good) / timing.measured_s,
        "mean_s": statistics.fmean(took),
        "p50_s": percentile(took, 50),
        "p95_s": percentile(took, 95),
        "p99_s": percentile(took, 99),
        "errors": len(outcomes) - len(answered),
        "not_2xx": len(answered) - len(good),
        "asked": len(good),
        "wrong": sum(not each.right for each in good),
    }
    return figures | _batch_rows(server, before)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known(Request):
    """Request `place` of a load, whose answer is known but for a model's rounding."""

    place: int
    prepared: Prepared

    def is_right(self, status: int, body: bytes) -> bool:
        return status != _OK or self.prepared.is_right(self.place, body)


async def _live(
    server: Running, clients: Clients, timing: Timing
) -> tuple[list[Outcome], _Ran | None]:
    """What was sent within the measurement, and what had run before it."""
    prepared = server.prepared
    bodies = [body.read_bytes() for body in prepared.bodies]
    requests = [
        _Known(0, body, place=place, prepared=prepared)
        for place, body in enumerate(bodies)
    ]
    end_s = timing.warm_up_s + timing.measured_s

    async def live(client: Client, number: int) -> list[Outcome]:
        # The same thoughts for every server.
        chance = random.Random(number)  # noqa: S311
        outcomes: list[Outcome] = []
        while True:
            think_s = chance.uniform(*_THINK_S) if clients.thinks else 0.0
            if client.now_s() + think_s >= end_s:
                return outcomes
            await asyncio.sleep(think_s)
            request = requests[(number + len(outcomes)) % len(requests)]
            outcomes.append(await client.ask(request))

    async def warmed_up() -> _Ran | None:
        await asyncio.sleep(timing.warm_up_s)
        return await asyncio.to_thread(server.batches) if server.batches else None

    async with client_of(server.port) as client:
        lives = [live(client, number) for number in range(clients.count)]
        before, *found = await asyncio.gather(warmed_up(), *lives)
    outcomes = [each for one in found for each in one]
    sent = [each for each in outcomes if timing.warm_up_s <= each.sent_s < end_s]
    return sent, before


def measured(server: Running, clients: Clients, timing: Timing) -> dict[str, float]:
    """A Cell's figures, with the clients that the load has."""
    drive = by_users if server.prepared.load.by_users else by_wrk
    return drive(server, clients, timing)
