"""Overload: an open loop at twice of what the device can do.

What a server is worth under overload is its goodput: rows answered well before their
deadline. Held against the peak, measured in the same run with as many clients as keep
the device busy and no more.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from itertools import count

from bench.figures import percentile
from bench.reliability import metrics
from bench.reliability.report import Report, tally
from bench.reliability.set_up import CROWDED, GOOD, device, simulated, with_client
from testing.open_loop import Client
from testing.open_loop_requests import (
    Cost,
    End,
    Outcome,
    Request,
    poisson,
    rows_request,
)
from testing.server import Server

# What a batch of any size costs, beside 50 ms.
_ROWS_MS = 128.0
_MAX_BATCH_SIZE = 64
_MAX_ENQUEUED_BATCHES = 16
_DEADLINE_S = 1.0
_DEADLINE = "X-Request-Timeout-Ms: 1000\r\n"
# Seconds at the start of each load that are not looked at.
_WARM_UP_S = 1.0
_GOODPUT = 0.9
_REFUSED_S = 0.010


@dataclass(frozen=True)
class Load:
    """What became of one load; times are seconds, `offered` is requests/s."""

    offered: float
    seconds: float
    outcomes: Sequence[Outcome]
    rows_run: int
    most_waiting: int
    cpu_share: float

    def goodput(self) -> float:
        """Rows in a second that were answered well within the deadline."""
        good = [
            one
            for one in self.outcomes
            if _in_time(one) and _WARM_UP_S <= one.ended_s < self.seconds
        ]
        return len(good) / (self.seconds - _WARM_UP_S)

    def refused(self) -> list[float]:
        """How long refusals took."""
        return [
            one.latency_s
            for one in self._seen()
            if one.status == HTTPStatus.SERVICE_UNAVAILABLE
        ]

    def refusals(self) -> float:
        """Requests refused in a second."""
        return len(self.refused()) / (self.seconds - _WARM_UP_S)

    def accepted(self) -> list[float]:
        """How long the others took, too late or never answered ones among them."""
        return [
            one.latency_s
            for one in self._seen()
            if one.status != HTTPStatus.SERVICE_UNAVAILABLE
        ]

    def in_vain(self) -> int:
        """Rows that were run and are in no answer."""
        return self.rows_run - sum(one.is_good() for one in self.outcomes)

    def unaccounted(self) -> list[Outcome]:
        """Requests that got neither their own answer nor an error that fits."""
        fitting = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
        return [
            one
            for one in self.outcomes
            if one.end is not End.ANSWERED
            or not one.right
            or one.status not in (HTTPStatus.OK, *fitting)
        ]

    def behind_s(self) -> float:
        """By how much the generator itself was late, at the 99th percentile."""
        return percentile([one.sent_s - one.request.at_s for one in self._seen()], 99)

    def _seen(self) -> list[Outcome]:
        return [
            one
            for one in self.outcomes
            if _WARM_UP_S <= one.request.at_s < self.seconds
        ]


def overload(seconds: float = 60, app: str = GOOD) -> Report:
    """Measure the peak for a quarter of `seconds`, then twice of it for all."""
    return _report(*peak_and_twice(seconds, app))


def peak_and_twice(
    seconds: float, app: str = GOOD, batch: int = _MAX_BATCH_SIZE
) -> tuple[Load, Load]:
    """The peak, measured for a quarter of `seconds`, and twice of it for all.

    The device takes as long for a batch of `batch` rows, whatever that is: with fewer
    a machine that is busy with something else keeps up, too.
    """
    with _serving(batch, app) as server:
        quarter = partial(_peak, seconds=max(seconds / 4, 3), batch=batch)
        peak = with_client(server, quarter)
        load = with_client(
            server, partial(offer, rate=2 * peak.goodput(), seconds=seconds)
        )
    return peak, load


def sweep(shares: Sequence[float], seconds: float = 20) -> tuple[Load, list[Load]]:
    """The peak, and what becomes of loads that are shares of it."""
    with _serving(_MAX_BATCH_SIZE) as server:
        peak = with_client(server, partial(_peak, seconds=seconds))
        loads = [
            with_client(
                server, partial(offer, rate=share * peak.goodput(), seconds=seconds)
            )
            for share in shares
        ]
    return peak, loads


def _serving(batch: int, app: str = GOOD) -> AbstractContextManager[Server]:
    simulation = device(base_ms=50, per_row_ms=_ROWS_MS / batch)
    return simulated(simulation, *CROWDED, app=app, max_batch_size=str(batch))


async def _peak(client: Client, seconds: float, batch: int = _MAX_BATCH_SIZE) -> Load:
    """One batch's clients run while another's wait: always busy, never overloaded."""
    numbers = count()

    def make(at_s: float) -> Request:
        return rows_request(at_s, next(numbers))

    before = await metrics.read(client)
    with Cost() as cost:
        outcomes = await client.closed_loop(2 * batch, seconds, make)
    after = await metrics.read(client)
    rows = metrics.gained(before, after, "basket_batch_rows_sum")
    return Load(0.0, seconds, outcomes, rows, 0, cost.cpu_s / cost.seconds)


async def offer(client: Client, rate: float, seconds: float) -> Load:
    """Send `rate` requests/s for so long, whatever the server does."""
    requests = [
        rows_request(at_s, number, headers=_DEADLINE)
        for number, at_s in enumerate(poisson(rate, seconds))
    ]
    before = await metrics.read(client)
    with Cost() as cost:
        async with metrics.sampled(client) as samples:
            outcomes = await client.open_loop(requests)
    after = await metrics.read(client)
    rows = metrics.gained(before, after, "basket_batch_rows_sum")
    waiting = [metrics.total(sample, "basket_queue_rows") for sample in samples]
    return Load(
        rate,
        seconds,
        outcomes,
        rows,
        int(max(waiting, default=0)),
        cost.cpu_s / cost.seconds,
    )


def _in_time(outcome: Outcome) -> bool:
    return outcome.is_good() and outcome.latency_s <= _DEADLINE_S


def _report(peak: Load, load: Load) -> Report:
    share = load.goodput() / peak.goodput()
    accepted_s = percentile(load.accepted(), 99)
    refused_s = percentile(load.refused(), 50)
    bound = _MAX_BATCH_SIZE * _MAX_ENQUEUED_BATCHES
    report = Report("Overload")
    report.notes += [
        f"Simulated device, 50 ms + 2 ms a row, batches of up to {_MAX_BATCH_SIZE}; "
        f"peak {peak.goodput():.0f} rows/s with {2 * _MAX_BATCH_SIZE} clients; then "
        f"{load.offered:.0f} requests/s (Poisson) for {load.seconds:.0f} s, deadline "
        f"{_DEADLINE_S:.0f} s. {tally(load.outcomes)}. The generator took "
        f"{load.cpu_share:.0%} of a core and was {load.behind_s() * 1000:.0f} ms late "
        "at its p99."
    ]
    report.promise(
        "goodput",
        f">= {_GOODPUT:.0%} of the peak",
        f"{load.goodput():.0f} rows/s, {share:.0%}",
        held=share >= _GOODPUT,
    )
    report.promise(
        "p99 of accepted requests",
        f"<= {_DEADLINE_S * 1000:.0f} ms",
        f"{accepted_s * 1000:.0f} ms",
        held=0 < accepted_s <= _DEADLINE_S,
    )
    report.promise(
        "refusals, median",
        f"< {_REFUSED_S * 1000:.0f} ms",
        f"{refused_s * 1000:.1f} ms of {len(load.refused()):,}",
        held=0 < refused_s < _REFUSED_S,
    )
    report.promise(
        "rows run in vain", "0", f"{load.in_vain():,}", held=load.in_vain() == 0
    )
    report.promise(
        "rows in the queue",
        f"<= {bound:,}",
        f"{load.most_waiting:,}",
        held=load.most_waiting <= bound,
    )
    wrong = load.unaccounted()
    report.promise(
        "requests without an answer of their own", "0", len(wrong), held=not wrong
    )
    return report
