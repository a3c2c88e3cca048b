"""Out of memory: a device that holds 20 rows, and batches of up to 64."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from bench.reliability import metrics
from bench.reliability.report import Report, tally
from bench.reliability.set_up import GOOD, device, simulated, with_client
from testing.open_loop import Client
from testing.open_loop_requests import Outcome, Request, rows_request

_MEMORY_ROWS = 20
_MAX_BATCH_SIZE = 64
_CLIENTS = 128
_FOUND_WITHIN = 10
_CEILING = "basket_batch_ceiling_rows"


@dataclass(frozen=True)
class _Seen:
    """After how many full batches the ceiling was what fits, and in how many runs."""

    found_after: int | None
    runs: int
    outcomes: Sequence[Outcome]
    ceilings: Sequence[int]
    mean_batch: float


def out_of_memory(seconds: float = 30, app: str = GOOD) -> Report:
    """Full batches one by one until the ceiling is found, then 128 clients at once."""
    simulation = device(base_ms=20, per_row_ms=0.5, memory_rows=_MEMORY_ROWS)
    with simulated(simulation, f"--threads={_CLIENTS + 8}", app=app) as server:
        seen = with_client(server, partial(_measure, seconds=seconds))
    return _report(seen, seconds)


async def _measure(client: Client, seconds: float) -> _Seen:
    outcomes: list[Outcome] = []
    numbers = count(step=_MAX_BATCH_SIZE)
    found_after = None
    now: metrics.Metrics = {}
    for batch in range(1, _FOUND_WITHIN + 1):
        request = rows_request(client.now_s(), next(numbers), rows=_MAX_BATCH_SIZE)
        outcomes.append(await client.ask(request))
        now = await metrics.read(client)
        if metrics.total(now, _CEILING) == _MEMORY_ROWS:
            found_after = batch
            break
    runs = int(metrics.total(now, "basket_batch_rows_count"))

    def make(at_s: float) -> Request:
        return rows_request(at_s, next(numbers))

    before = await metrics.read(client)
    async with metrics.sampled(client) as samples:
        outcomes += await client.closed_loop(_CLIENTS, seconds, make)
    after = await metrics.read(client)
    batches = metrics.gained(before, after, "basket_batch_rows_count")
    rows = metrics.gained(before, after, "basket_batch_rows_sum")
    ceilings = [int(metrics.total(sample, _CEILING)) for sample in samples]
    return _Seen(found_after, runs, outcomes, ceilings, rows / batches)


def _report(seen: _Seen, seconds: float) -> Report:
    report = Report("Out of memory")
    report.notes += [
        f"Simulated device that holds {_MEMORY_ROWS} rows, batches of up to "
        f"{_MAX_BATCH_SIZE}. Requests of {_MAX_BATCH_SIZE} rows until the ceiling is "
        f"found, then {_CLIENTS} clients for {seconds:.0f} s: {tally(seen.outcomes)}; "
        f"{seen.mean_batch:.1f} rows in a batch."
    ]
    failed = [one for one in seen.outcomes if not one.is_good()]
    report.promise(
        "requests lost, failed or wrong",
        "0",
        f"{len(failed):,} of {len(seen.outcomes):,}",
        held=not failed,
    )
    report.promise(
        "full batches until the ceiling is found",
        f"<= {_FOUND_WITHIN}",
        f"{seen.found_after or 'not found'}, in {seen.runs} runs",
        held=seen.found_after is not None,
    )
    shown = sorted(set(seen.ceilings))
    report.promise(
        "the ceiling then",
        f"{_MEMORY_ROWS} rows",
        ", ".join(map(str, shown)) or "never looked at",
        held=shown == [_MEMORY_ROWS],
    )
    return report
