"""Overload: an open loop at twice the device's capacity.

Goodput counts rows that are answered well before their deadline. It is compared with
the peak, measured in the same run with as many clients as keep the device busy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count

from bench.figures import percentile
from bench.reliability import server as basket
from bench.reliability.report import Report, tally
from bench.reliability.server import ROWS_RUN, with_client
from testing.open_loop import Client
from testing.open_loop_requests import Outcome, poisson, rows_request
from testing.simulated import GOOD, device, simulated

# Milliseconds of a full batch, beside 50 ms.
_ROWS_MS = 128.0
_MAX_BATCH_SIZE = 64
_MAX_ENQUEUED_BATCHES = 16
_DEADLINE_S = 1.0
_DEADLINE = "X-Request-Timeout-Ms: 1000\r\n"
# Seconds at the start of each load that do not count.
_WARM_UP_S = 1.0
_GOODPUT = 0.9
_REFUSED_MS = 10
_ANSWERS = (200, 503, 504)


@dataclass(frozen=True)
class Load:
    """The outcomes of one load; `offered` is in requests/s."""

    offered: float
    seconds: float
    outcomes: Sequence[Outcome]
    rows_run: int
    most_waiting: int = 0

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
        outcomes = self.outcomes
        return [one for one in outcomes if not one.right or one.status not in _ANSWERS]

    def late_ms(self) -> float:
        """Return how late the generator sent, at its p99."""
        late_s = [one.sent_s - one.request.at_s for one in self._counted()]
        return percentile(late_s, 99) * 1000

    def _counted(self) -> list[Outcome]:
        from_s, to_s = _WARM_UP_S, self.seconds
        return [one for one in self.outcomes if from_s <= one.request.at_s < to_s]


def overload(seconds: float = 60, app: str = GOOD) -> Report:
    """Measure the peak for a quarter of `seconds`, then twice the peak for all."""
    peak, load = peak_and_twice(seconds, app)
    share = load.goodput() / peak.goodput()
    # Without any it is not known.
    accepted_s = percentile(load.times_s(refused=False), 99) or math.inf
    refused = load.times_s(refused=True)
    refused_s = percentile(refused, 50) or math.inf
    bound = _MAX_BATCH_SIZE * _MAX_ENQUEUED_BATCHES
    report = Report(
        "Overload",
        f"Simulated device, 50 ms + 2 ms a row, batches of up to {_MAX_BATCH_SIZE}; "
        f"peak {peak.goodput():.0f} rows/s with {2 * _MAX_BATCH_SIZE} clients; then "
        f"{load.offered:.0f} requests/s (Poisson) for {load.seconds:.0f} s, deadline "
        f"{_DEADLINE_S:.0f} s. {tally(load.outcomes)}. The generator was "
        f"{load.late_ms():.0f} ms late at its p99.",
    )
    limit, goodput = f">= {_GOODPUT:.0%} of the peak", f"{load.goodput():.0f} rows/s"
    report.promise("goodput", limit, f"{goodput}, {share:.0%}", share >= _GOODPUT)
    most_ms, of = 1000 * _DEADLINE_S, f" of {len(refused):,}"
    report.at_most("p99 of accepted requests", 1000 * accepted_s, most_ms, " ms")
    report.at_most("refusals, median", 1000 * refused_s, _REFUSED_MS, " ms", of)
    report.at_most("rows run in vain", load.in_vain(), 0)
    report.at_most("rows in the queue", load.most_waiting, bound)
    report.none_of("requests without an answer of their own", load.unaccounted())
    return report


def peak_and_twice(
    seconds: float, app: str = GOOD, batch: int = _MAX_BATCH_SIZE
) -> tuple[Load, Load]:
    """Measure the peak for a quarter of `seconds`, and twice the peak for all.

    A full batch takes as long for any size `batch`: with a small one a busy machine
    keeps up, too.
    """
    full = device(base_ms=50, per_row_ms=_ROWS_MS / batch)
    settings = {"app": app, "max_batch_size": str(batch)}
    with simulated(full, *basket.CROWDED, **settings) as server:
        peak = with_client(server, _peak, max(seconds / 4, 3), batch)
        return peak, with_client(server, _offer, 2 * peak.goodput(), seconds)


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
        outcomes = await client.open_loop(requests)
    most = max(waiting, default=0)
    return Load(rate, seconds, outcomes, grown[ROWS_RUN], most)
