"""Overload: an open loop at twice the device's capacity.

Goodput counts rows that are answered well before their deadline. It is compared with
the peak, measured in the same run with as many clients as keep the device busy.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from pathlib import Path

from bench.figures import percentile
from bench.reliability import server as basket
from bench.reliability.report import Report, tally
from bench.reliability.server import ROWS_RUN, with_client
from bench.report import table
from testing.open_loop import Client
from testing.open_loop_requests import End, Outcome, poisson, rows_request
from testing.server import Server

# Milliseconds of a full batch, beside 50 ms.
_ROWS_MS = 128.0
_MAX_BATCH_SIZE = 64
_MAX_ENQUEUED_BATCHES = 16
_DEADLINE_S = 1.0
_DEADLINE = "X-Request-Timeout-Ms: 1000\r\n"
# Seconds at the start of each load that do not count.
_WARM_UP_S = 1.0
_GOODPUT = 0.9
_REFUSED_S = 0.010
_ANSWERS = (
    *(HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE),
    HTTPStatus.GATEWAY_TIMEOUT,
)
_SHARES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)
_SWEEP_S = 20


@dataclass(frozen=True)
class Load:
    """The outcomes of one load; `offered` is in requests/s."""

    offered: float
    seconds: float
    outcomes: Sequence[Outcome]
    rows_run: int
    most_waiting: int = 0
    cpu_share: float = 0.0

    def goodput(self) -> float:
        """Return the rows per second that were answered within the deadline."""
        good = [
            one
            for one in self.outcomes
            if one.is_good() and one.latency_s <= _DEADLINE_S
            if _WARM_UP_S <= one.ended_s < self.seconds
        ]
        return len(good) / (self.seconds - _WARM_UP_S)

    def times_s(self, *, refused: bool) -> list[float]:
        """Return the latencies of refused requests (503), or of all others."""
        return [
            one.latency_s
            for one in self._counted()
            if (one.status == HTTPStatus.SERVICE_UNAVAILABLE) == refused
        ]

    def in_vain(self) -> int:
        """Return the number of rows that were run and are in no answer."""
        return self.rows_run - sum(one.is_good() for one in self.outcomes)

    def unaccounted(self) -> list[Outcome]:
        """Return the requests without their own answer or a 503 or 504."""
        return [
            one
            for one in self.outcomes
            if one.end is not End.ANSWERED
            or not one.right
            or one.status not in _ANSWERS
        ]

    def generator(self) -> str:
        """Return how much of a core the generator took, and how late it sent."""
        late_s = [one.sent_s - one.request.at_s for one in self._counted()]
        return (
            f"The generator took {self.cpu_share:.0%} of a core and was "
            f"{percentile(late_s, 99) * 1000:.0f} ms late at its p99."
        )

    def _counted(self) -> list[Outcome]:
        return [
            one
            for one in self.outcomes
            if _WARM_UP_S <= one.request.at_s < self.seconds
        ]


def overload(
    seconds: float = 60, app: str = basket.GOOD, plot: Path | None = None
) -> Report:
    """Measure the peak for a quarter of `seconds`, then twice the peak for all.

    With `plot`, loads from a quarter to three times the peak are drawn into a PNG.
    """
    report = _report(*peak_and_twice(seconds, app))
    if plot is not None:
        report.notes += ["", *_sweep(plot), ""]
    return report


def peak_and_twice(
    seconds: float, app: str = basket.GOOD, batch: int = _MAX_BATCH_SIZE
) -> tuple[Load, Load]:
    """Measure the peak for a quarter of `seconds`, and twice the peak for all.

    A full batch takes as long for any size `batch`: with a small one a busy machine
    keeps up, too.
    """
    with _serving(batch, app) as server:
        peak = with_client(server, _peak, max(seconds / 4, 3), batch)
        return peak, with_client(server, _offer, 2 * peak.goodput(), seconds)


def _serving(batch: int, app: str) -> AbstractContextManager[Server]:
    device = basket.device(base_ms=50, per_row_ms=_ROWS_MS / batch)
    settings = {"app": app, "max_batch_size": str(batch)}
    return basket.simulated(device, *basket.CROWDED, **settings)


async def _peak(client: Client, seconds: float, batch: int) -> Load:
    """Keep one batch running and one waiting."""
    numbers = count()
    async with basket.counted(client, ROWS_RUN) as grown:
        outcomes = await client.closed_loop(
            2 * batch, seconds, lambda at_s: rows_request(at_s, next(numbers))
        )
    return Load(0.0, seconds, outcomes, grown[ROWS_RUN])


async def _offer(client: Client, rate: float, seconds: float) -> Load:
    """Send `rate` requests/s, whatever the server does."""
    requests = [
        rows_request(at_s, number, headers=_DEADLINE)
        for number, at_s in enumerate(poisson(rate, seconds))
    ]
    async with (
        basket.counted(client, ROWS_RUN) as grown,
        basket.sampled(client, "basket_queue_rows") as waiting,
    ):
        began_cpu_s, began_at = time.process_time(), time.monotonic()
        outcomes = await client.open_loop(requests)
        took_s = time.monotonic() - began_at
        cpu_share = (time.process_time() - began_cpu_s) / took_s
    most = max(waiting, default=0)
    return Load(rate, seconds, outcomes, grown[ROWS_RUN], most, cpu_share)


def _report(peak: Load, load: Load) -> Report:
    share = load.goodput() / peak.goodput()
    accepted_s = percentile(load.times_s(refused=False), 99)
    refused = load.times_s(refused=True)
    refused_s = percentile(refused, 50)
    vain, waiting = load.in_vain(), load.most_waiting
    bound = _MAX_BATCH_SIZE * _MAX_ENQUEUED_BATCHES
    report = Report(
        "Overload",
        f"Simulated device, 50 ms + 2 ms a row, batches of up to {_MAX_BATCH_SIZE}; "
        f"peak {peak.goodput():.0f} rows/s with {2 * _MAX_BATCH_SIZE} clients; then "
        f"{load.offered:.0f} requests/s (Poisson) for {load.seconds:.0f} s, deadline "
        f"{_DEADLINE_S:.0f} s. {tally(load.outcomes)}. {load.generator()}",
    )
    report.promise(
        "goodput",
        f">= {_GOODPUT:.0%} of the peak",
        f"{load.goodput():.0f} rows/s, {share:.0%}",
        share >= _GOODPUT,
    )
    report.promise(
        "p99 of accepted requests",
        f"<= {_DEADLINE_S * 1000:.0f} ms",
        f"{accepted_s * 1000:.0f} ms",
        0 < accepted_s <= _DEADLINE_S,
    )
    report.promise(
        "refusals, median",
        f"< {_REFUSED_S * 1000:.0f} ms",
        f"{refused_s * 1000:.1f} ms of {len(refused):,}",
        0 < refused_s < _REFUSED_S,
    )
    report.promise("rows run in vain", "0", f"{vain:,}", vain == 0)
    limit, words = f"<= {bound:,}", f"{waiting:,}"
    report.promise("rows in the queue", limit, words, waiting <= bound)
    report.none_of("requests without an answer of their own", load.unaccounted())
    return report


def _sweep(file: Path) -> list[str]:
    """Draw goodput and refusals over the offered load; return them as a table."""
    from bench import plots  # noqa: PLC0415 # slow to import

    with _serving(_MAX_BATCH_SIZE, basket.GOOD) as server:
        peak = with_client(server, _peak, _SWEEP_S, _MAX_BATCH_SIZE).goodput()
        loads = [with_client(server, _offer, n * peak, _SWEEP_S) for n in _SHARES]
    offered = [load.offered for load in loads]
    good = [load.goodput() for load in loads]
    refused = [
        len(load.times_s(refused=True)) / (_SWEEP_S - _WARM_UP_S) for load in loads
    ]
    red, blue = plots.COLORS[0], plots.COLORS[3]
    with plots.saved(file, (5.8, 4.2)) as (axes,):
        axes.axhline(peak, color=plots.GREY, linestyle=":", label="peak at capacity")
        axes.plot(offered, good, "o-", color=blue, label="answered in time")
        axes.plot(offered, refused, "s--", color=red, label="refused at once")
        axes.set_xlim(left=0)
        axes.set_xlabel("requests offered per second")
        plots.from_zero(axes, "requests per second")
        axes.set_title("Goodput under overload, simulated device")
        axes.legend()
    heading = ("offered (requests/s)", "in time (1/s)", "refused (1/s)")
    rows = zip(offered, good, refused, strict=True)
    return table(heading, [[f"{value:.0f}" for value in row] for row in rows])
