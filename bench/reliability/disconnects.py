"""Disconnects: many clients disconnect while their rows wait, others stay.

One batch keeps the device busy until the first clients have queued their rows and
disconnected. The clients that stay come last, so each abandoned row that still ran
would delay them.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bench.reliability.report import Report, tally
from bench.reliability.server import (
    CROWDED,
    GOOD,
    Metrics,
    device,
    gained,
    raise_descriptor_limit,
    read_metrics,
    simulated,
    total,
    with_client,
)
from testing.open_loop import Client
from testing.open_loop_requests import Outcome, rows_request

_STAY = 20
_ABANDONED = 'basket_rejected_total{reason="abandoned"}'
# Longer than any request waits.
_DEADLINE_MS = "600000"
_SLOWER = 1.1
_POLL_S = 0.02
_FIRST_S = 0.2
_GIVE_UP_S = 30.0


@dataclass(frozen=True)
class _Round:
    """The batch that kept the device busy, and what followed it."""

    first: Outcome
    stayed: list[Outcome]
    rows_run: int
    abandoned: int
    in_time: bool

    def took_s(self) -> float:
        """Return the seconds from the first batch to the last answer."""
        return max(one.ended_s for one in self.stayed) - self.first.ended_s


def disconnects(clients: int = 1000, batch_s: float = 5, app: str = GOOD) -> Report:
    """Let clients disconnect during a batch of `batch_s` seconds."""
    raise_descriptor_limit()
    settings = {
        "request_timeout_ms": _DEADLINE_MS,
        "max_enqueued_batches": str((clients + 2 * _STAY) // 64 + 1),
    }
    arguments = (*CROWDED, "--timeout=120")
    simulation = device(base_ms=batch_s * 1000, per_row_ms=0)
    with simulated(simulation, *arguments, app=app, **settings) as server:
        alone = with_client(server, _round, 0)
        beside = with_client(server, _round, clients)
    note = (
        f"Simulated device, {batch_s:g} s a batch of up to 64. One batch of one row "
        f"runs; {clients:,} clients queue up behind it, {_STAY} that stay come last, "
        f"then the {clients:,} disconnect. Others got {tally(beside.stayed)}."
    )
    report = Report("Disconnects", [note])
    report.promise(
        "all disconnects during the first batch",
        "else give it more seconds",
        "yes" if beside.in_time else "no",
        beside.in_time,
    )
    if beside.in_time:
        rows = beside.rows_run - 1 - _STAY
        report.promise("rows run of clients that disconnected", "0", rows, rows == 0)
        counted = beside.abandoned
        report.promise(
            "disconnects counted", f"{clients:,}", f"{counted:,}", counted == clients
        )
    times = beside.took_s() / alone.took_s()
    report.promise(
        "clients that stayed, after the first batch",
        f"<= {_SLOWER:g} x without disconnects",
        f"{beside.took_s():.2f} s, {times:.2f} x {alone.took_s():.2f} s",
        times <= _SLOWER,
    )
    stayed = [alone.first, *alone.stayed, beside.first, *beside.stayed]
    failed = [one for one in stayed if not one.is_good()]
    report.none_of("failed among clients that stayed", failed)
    return report


async def _round(client: Client, disconnecting: int) -> _Round:
    before = await read_metrics(client)

    def send(number: int) -> asyncio.Task[Outcome]:
        return asyncio.create_task(client.ask(rows_request(client.now_s(), number)))

    async def until(condition: Callable[[Metrics], bool]) -> Metrics:
        give_up_at = client.now_s() + _GIVE_UP_S
        while not condition(now := await read_metrics(client)):
            if client.now_s() > give_up_at:
                break
            await asyncio.sleep(_POLL_S)
        return now

    async def until_queued(rows: int) -> None:
        await until(lambda now: total(now, "basket_queue_rows") >= rows)

    first = send(0)
    # Its batch starts at once, and no metric shows that a batch has started.
    await asyncio.sleep(_FIRST_S)
    leaving = [send(n + 1) for n in range(disconnecting)]
    await until_queued(disconnecting)
    staying = [send(disconnecting + 1 + n) for n in range(_STAY)]
    await until_queued(disconnecting + _STAY)
    for task in leaving:
        task.cancel()  # closes its connection
    await asyncio.gather(*leaving, return_exceptions=True)
    in_time = not first.done()
    stayed = await asyncio.gather(*staying)
    requests = 1 + disconnecting + _STAY
    after = await until(
        lambda now: gained(before, now, "basket_requests_total") >= requests
    )
    abandoned = int(after.get(_ABANDONED, 0) - before.get(_ABANDONED, 0))
    rows = gained(before, after, "basket_batch_rows_sum")
    return _Round(await first, stayed, rows, abandoned, in_time)
