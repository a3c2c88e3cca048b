"""What a target rate costs a month, from the rate that one instance manages."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.loadtest.analysis import Figures

HOURS_A_MONTH = 720  # 30 days, as in the article's sum


@dataclass(frozen=True)
class Wanted:
    """What is wanted, and what an instance costs.

    `price_usd` is of an instance-hour, `p95_limit_s` the longest 95th percentile of
    the response time in seconds, `target_rate` in requests per second.
    """

    price_usd: float
    p95_limit_s: float
    target_rate: float


@dataclass(frozen=True)
class Bill:
    """Instances of one kind for a target rate, and dollars for a month of them.

    `rate` is one instance's requests per second.
    """

    rate: float
    instances: int
    usd_a_month: float


@dataclass(frozen=True)
class Offer:
    """A set-up's best load within the limit; None where it has none."""

    setup: str
    load: Figures | None
    bill: Bill | None


def bill(rate: float, wanted: Wanted) -> Bill:
    """What `wanted` costs with instances of `rate` requests per second each."""
    instances = math.ceil(wanted.target_rate / rate)
    return Bill(rate, instances, instances * wanted.price_usd * HOURS_A_MONTH)


def offers(rows: Sequence[Figures], wanted: Wanted) -> list[Offer]:
    """For each set-up its load of the highest rate whose p95 is within the limit.

    A load with errors or a problem is not one to rely on and does not count.
    """
    found = []
    for setup in dict.fromkeys(row.setup for row in rows):
        best = _best(row for row in rows if row.setup == setup and _within(row, wanted))
        found.append(Offer(setup, best, bill(best.rate, wanted) if best else None))
    return found


def _within(row: Figures, wanted: Wanted) -> bool:
    return row.sound and row.p95_s is not None and row.p95_s <= wanted.p95_limit_s


def _best(rows: Iterable[Figures]) -> Figures | None:
    return max(
        (row for row in rows if row.rate > 0), key=lambda r: r.rate, default=None
    )
