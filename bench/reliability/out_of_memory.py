"""Out of memory: a device that holds 20 rows, and batches of up to 64."""

import math
from itertools import count

from bench.reliability import server as basket
from bench.reliability.report import Report, tally
from testing.open_loop import Client
from testing.open_loop_requests import Outcome, rows_request
from testing.simulated import GOOD, device, simulated

_MEMORY_ROWS = 20
_MAX_BATCH_SIZE = 64
_CLIENTS = 128
_FOUND_WITHIN = 10
_CEILING = "basket_batch_ceiling_rows"


def out_of_memory(seconds: float = 30, app: str = GOOD) -> Report:
    """Send full batches until the batch ceiling is found, then load of 128 clients."""
    small = device(base_ms=20, per_row_ms=0.5, memory_rows=_MEMORY_ROWS)
    with simulated(small, f"--threads={_CLIENTS + 8}", app=app) as server:
        return basket.with_client(server, _measure, seconds)


async def _measure(client: Client, seconds: float) -> Report:
    outcomes: list[Outcome] = []
    numbers = count(step=_MAX_BATCH_SIZE)
    found_after = math.inf
    for batch in range(1, _FOUND_WITHIN + 1):
        request = rows_request(client.now_s(), next(numbers), rows=_MAX_BATCH_SIZE)
        outcomes.append(await client.ask(request))
        if await client.total(_CEILING) == _MEMORY_ROWS:
            found_after = batch
            break
    runs = await client.total(basket.BATCHES_RUN)
    async with (
        basket.counted(client, basket.ROWS_RUN, basket.BATCHES_RUN) as grown,
        basket.sampled(client, _CEILING) as ceilings,
    ):
        outcomes += await client.closed_loop(
            _CLIENTS, seconds, lambda at_s: rows_request(at_s, next(numbers))
        )
    mean_batch = grown[basket.ROWS_RUN] / grown[basket.BATCHES_RUN]
    report = Report(
        "Out of memory",
        f"Simulated device that holds {_MEMORY_ROWS} rows, batches of up to "
        f"{_MAX_BATCH_SIZE}. Requests of {_MAX_BATCH_SIZE} rows until the ceiling is "
        f"found, then {_CLIENTS} clients for {seconds:.0f} s: {tally(outcomes)}; "
        f"{mean_batch:.1f} rows in a batch.",
    )
    report.all_good("requests lost, failed or wrong", outcomes)
    what, in_runs = "full batches until the ceiling is found", f", in {runs} runs"
    report.at_most(what, found_after, _FOUND_WITHIN, note=in_runs)
    shown = sorted(set(ceilings))
    words = ", ".join(map(str, shown)) or "never read"
    held = shown == [_MEMORY_ROWS]
    report.promise("the ceiling then", f"{_MEMORY_ROWS} rows", words, held)
    return report
