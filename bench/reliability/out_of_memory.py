"""Out of memory: a device that holds 20 rows, and batches of up to 64."""

from itertools import count

from bench.reliability.report import Report, tally
from bench.reliability.server import (
    GOOD,
    Metrics,
    device,
    gained,
    read_metrics,
    sampled,
    simulated,
    total,
    with_client,
)
from testing.open_loop import Client
from testing.open_loop_requests import Outcome, Request, rows_request

_MEMORY_ROWS = 20
_MAX_BATCH_SIZE = 64
_CLIENTS = 128
_FOUND_WITHIN = 10
_CEILING = "basket_batch_ceiling_rows"


def out_of_memory(seconds: float = 30, app: str = GOOD) -> Report:
    """Send full batches until the batch ceiling is found, then load of 128 clients."""
    simulation = device(base_ms=20, per_row_ms=0.5, memory_rows=_MEMORY_ROWS)
    with simulated(simulation, f"--threads={_CLIENTS + 8}", app=app) as server:
        return with_client(server, _measure, seconds)


async def _measure(client: Client, seconds: float) -> Report:
    outcomes: list[Outcome] = []
    numbers = count(step=_MAX_BATCH_SIZE)
    found_after = None
    now: Metrics = {}
    for batch in range(1, _FOUND_WITHIN + 1):
        request = rows_request(client.now_s(), next(numbers), rows=_MAX_BATCH_SIZE)
        outcomes.append(await client.ask(request))
        now = await read_metrics(client)
        if total(now, _CEILING) == _MEMORY_ROWS:
            found_after = batch
            break
    runs = int(total(now, "basket_batch_rows_count"))

    def make(at_s: float) -> Request:
        return rows_request(at_s, next(numbers))

    before = await read_metrics(client)
    async with sampled(client, _CEILING) as ceilings:
        outcomes += await client.closed_loop(_CLIENTS, seconds, make)
    after = await read_metrics(client)
    rows = gained(before, after, "basket_batch_rows_sum")
    mean_batch = rows / gained(before, after, "basket_batch_rows_count")
    note = (
        f"Simulated device that holds {_MEMORY_ROWS} rows, batches of up to "
        f"{_MAX_BATCH_SIZE}. Requests of {_MAX_BATCH_SIZE} rows until the ceiling is "
        f"found, then {_CLIENTS} clients for {seconds:.0f} s: {tally(outcomes)}; "
        f"{mean_batch:.1f} rows in a batch."
    )
    report = Report("Out of memory", [note])
    failed = [one for one in outcomes if not one.is_good()]
    report.none_of("requests lost, failed or wrong", failed, len(outcomes))
    report.promise(
        "full batches until the ceiling is found",
        f"<= {_FOUND_WITHIN}",
        f"{found_after or 'not found'}, in {runs} runs",
        found_after is not None,
    )
    shown = sorted(set(ceilings))
    words = ", ".join(map(str, shown)) or "never read"
    report.promise(
        "the ceiling then", f"{_MEMORY_ROWS} rows", words, shown == [_MEMORY_ROWS]
    )
    return report
