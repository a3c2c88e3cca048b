"""Disconnects: many clients disconnect while their rows wait, others stay.

One batch keeps the device busy until the first clients have queued their rows and
disconnected. The clients that stay come last, so each abandoned row that still ran
would delay them.
"""

import asyncio

from bench.reliability import server as basket
from bench.reliability.report import Report, tally
from testing.open_loop import Client
from testing.open_loop_requests import Outcome, rows_request
from testing.processes import raise_descriptor_limit
from testing.simulated import GOOD, device, simulated

_STAY = 20
_ABANDONED = 'basket_rejected_total{reason="abandoned"}'
_ANSWERED = "basket_requests_total"
# Longer than any request waits.
_DEADLINE_MS = "600000"
_SLOWER = 1.1
_POLL_S = 0.02
_FIRST_S = 0.2


def disconnects(clients: int = 1000, batch_s: float = 5, app: str = GOOD) -> Report:
    """Let clients disconnect during a batch of `batch_s` seconds."""
    raise_descriptor_limit()
    with simulated(
        device(base_ms=batch_s * 1000, per_row_ms=0),
        *(*basket.CROWDED, "--timeout=120"),
        app=app,
        request_timeout_ms=_DEADLINE_MS,
        max_enqueued_batches=str((clients + 2 * _STAY) // 64 + 1),
    ) as server:
        in_time, first, stayed, grown = basket.with_client(server, _round, clients)
    report = Report(
        "Disconnects",
        f"Simulated device, {batch_s:g} s a batch of up to 64. One batch of one row "
        f"runs; {clients:,} clients queue up behind it, {_STAY} that stay come last, "
        f"then the {clients:,} disconnect. Others got {tally(stayed)}.",
    )
    what, told = "all disconnects during the first batch", "else use fewer clients"
    report.promise(what, told, "yes" if in_time else "no", in_time)
    if in_time:
        rows = grown[basket.ROWS_RUN] - 1 - _STAY
        report.at_most("rows run of clients that disconnected", rows, 0)
        missed = clients - grown[_ABANDONED]
        report.promise("disconnects not counted", "0", missed, missed == 0)
    what, one_batch = "clients that stayed, after the first batch", f" of {batch_s:g} s"
    took_s = max(one.ended_s for one in stayed) - first.ended_s
    report.at_most(what, took_s / batch_s, _SLOWER, " x one batch", one_batch)
    report.all_good("failed among clients that stayed", [first, *stayed])
    return report


async def _round(
    client: Client, disconnecting: int
) -> tuple[bool, Outcome, list[Outcome], dict[str, int]]:
    """Return whether all disconnected during the first batch, and what came of it."""

    def send(number: int) -> asyncio.Task[Outcome]:
        return asyncio.create_task(client.ask(rows_request(client.now_s(), number)))

    async def until(name: str, least: int) -> None:
        async def is_reached() -> bool:
            return await client.total(name) >= least

        await basket.until(is_reached, poll_s=_POLL_S)

    answered = await client.total(_ANSWERED) + 1 + disconnecting + _STAY
    async with basket.counted(client, _ABANDONED, basket.ROWS_RUN) as grown:
        first = send(0)
        # Its batch starts at once, and no metric shows that a batch has started.
        await asyncio.sleep(_FIRST_S)
        leaving = [send(n + 1) for n in range(disconnecting)]
        await until("basket_queue_rows", disconnecting)
        staying = [send(disconnecting + 1 + n) for n in range(_STAY)]
        await until("basket_queue_rows", disconnecting + _STAY)
        for task in leaving:
            task.cancel()  # closes its connection
        await asyncio.gather(*leaving, return_exceptions=True)
        in_time = not first.done()
        stayed = await asyncio.gather(*staying)
        await until(_ANSWERED, answered)
    return in_time, await first, stayed, grown
