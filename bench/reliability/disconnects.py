"""Disconnects: a crowd hangs up while its rows wait, before others that stay.

One batch keeps the device busy for as long as the crowd needs to come, to queue up
and to go. Those who stay have come last, so each row of the crowd that still ran
would be before theirs.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench.reliability import metrics
from bench.reliability.report import Report, tally
from bench.reliability.set_up import (
    CROWDED,
    GOOD,
    device,
    raise_descriptor_limit,
    simulated,
    with_client,
)
from testing.open_loop import Client
from testing.open_loop_requests import Outcome, rows_request

_STAY = 20
_ABANDONED = 'basket_rejected_total{reason="abandoned"}'
# Seconds that nobody needs; all that wait are waited for.
_LONG_S = 600.0
_SLOWER = 1.1
_LOOK_S = 0.02
_FIRST_S = 0.2
_PATIENCE_S = 30.0


@dataclass(frozen=True)
class _Round:
    """One batch that keeps the device busy, and what followed it."""

    first: Outcome
    stayed: list[Outcome]
    rows_run: int
    batches: int
    abandoned: int
    in_time: bool

    def took_s(self) -> float:
        """From the first batch's end until the last who stayed had its answer."""
        return max(one.ended_s for one in self.stayed) - self.first.ended_s

    def all(self) -> list[Outcome]:
        return [self.first, *self.stayed]


def disconnects(clients: int = 1000, batch_s: float = 5, app: str = GOOD) -> Report:
    """Let so many clients hang up during a batch of `batch_s` seconds.

    The queue has room for all of them at once.
    """
    raise_descriptor_limit()
    settings = {
        "request_timeout_ms": f"{_LONG_S * 1000:.0f}",
        "max_enqueued_batches": str((clients + 2 * _STAY) // 64 + 1),
    }
    simulation = device(base_ms=batch_s * 1000, per_row_ms=0)
    with simulated(
        simulation, *CROWDED, "--timeout=120", app=app, **settings
    ) as server:
        alone = with_client(server, partial(_round, crowd=0))
        beside = with_client(server, partial(_round, crowd=clients))
    return _report(clients, batch_s, alone, beside)


async def _round(client: Client, crowd: int) -> _Round:
    before = await metrics.read(client)

    def ask(number: int) -> asyncio.Task[Outcome]:
        return asyncio.create_task(client.ask(rows_request(client.now_s(), number)))

    async def until(condition: Callable[[metrics.Metrics], bool]) -> metrics.Metrics:
        give_up_at = client.now_s() + _PATIENCE_S
        while not condition(now := await metrics.read(client)):
            if client.now_s() > give_up_at:
                break
            await asyncio.sleep(_LOOK_S)
        return now

    first = ask(0)
    # It runs as soon as it is there, and no series tells that a batch has begun.
    await asyncio.sleep(_FIRST_S)
    crowding = [ask(n + 1) for n in range(crowd)]
    await until(lambda now: metrics.total(now, "basket_queue_rows") >= crowd)
    staying = [ask(crowd + 1 + n) for n in range(_STAY)]
    await until(lambda now: metrics.total(now, "basket_queue_rows") >= crowd + _STAY)
    for task in crowding:
        task.cancel()  # closes its connection
    await asyncio.gather(*crowding, return_exceptions=True)
    in_time = not first.done()
    stayed = await asyncio.gather(*staying)
    everybody = 1 + crowd + _STAY
    after = await until(
        lambda now: metrics.gained(before, now, "basket_requests_total") >= everybody
    )
    return _Round(
        await first,
        stayed,
        metrics.gained(before, after, "basket_batch_rows_sum"),
        metrics.gained(before, after, "basket_batch_rows_count"),
        _abandoned(before, after),
        in_time,
    )


def _abandoned(before: metrics.Metrics, after: metrics.Metrics) -> int:
    return int(after.get(_ABANDONED, 0) - before.get(_ABANDONED, 0))


def _report(clients: int, batch_s: float, alone: _Round, beside: _Round) -> Report:
    report = Report("Disconnects")
    report.notes += [
        f"Simulated device, {batch_s:g} s a batch of up to 64. One batch of one row "
        f"runs; {clients:,} clients queue up behind it, {_STAY} who stay come last, "
        f"then the {clients:,} hang up. Those who stayed got {tally(beside.stayed)}."
    ]
    report.promise(
        "the crowd came and went during the first batch",
        "else give it more seconds",
        "yes" if beside.in_time else "no",
        held=beside.in_time,
    )
    if beside.in_time:
        _report_crowd(report, clients, beside)
    times = beside.took_s() / alone.took_s()
    report.promise(
        "those who stayed, after the first batch",
        f"<= {_SLOWER:g} x without the crowd",
        f"{beside.took_s():.2f} s, {times:.2f} x {alone.took_s():.2f} s",
        held=times <= _SLOWER,
    )
    failed = [one for one in (*alone.all(), *beside.all()) if not one.is_good()]
    report.promise("failed among those who stayed", "0", len(failed), held=not failed)
    return report


def _report_crowd(report: Report, clients: int, beside: _Round) -> None:
    wanted = 1 + _STAY
    report.promise(
        "rows run of those who hung up",
        "0",
        beside.rows_run - wanted,
        held=beside.rows_run == wanted,
    )
    report.promise(
        "hang-ups counted",
        f"{clients:,}",
        f"{beside.abandoned:,}",
        held=beside.abandoned == clients,
    )
