"""Fairness: one client floods, another goes on at its own pace.

The flood asks ten times as often as the polite client, and twice as often as the
device can answer. The polite client has to wait for the batch that runs and for its
own, so what it can be promised follows from the cost of a full batch: little where a
batch costs the same whatever is in it.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bench.figures import percentile
from bench.reliability.report import Report, tally
from bench.reliability.set_up import CROWDED, GOOD, device, simulated, with_client
from testing.open_loop import Client
from testing.open_loop_requests import Outcome, poisson, rows_request

_MAX_BATCH_SIZE = 16
_FLOOD = 10
# Of what the device can do.
_POLITE_SHARE = 0.2
_TIMES = 2.0
_WARM_UP_S = 2.0
_POLITE, _FLOODING = "polite", "flooding"
_FIXED = (50.0, 0.1)
_BY_ROW = (50.0, 2.0)


@dataclass(frozen=True)
class Polite:
    """What the polite client saw alone and beside the flood."""

    rate: float
    alone: list[Outcome]
    beside: list[Outcome]
    flood: list[Outcome]

    def p99_s(self) -> tuple[float, float]:
        """In seconds, alone and beside the flood."""
        return _p99_s(self.alone), _p99_s(self.beside)

    def failed(self) -> int:
        """How many of its requests had no answer."""
        return sum(not one.is_good() for one in (*self.alone, *self.beside))


def fairness(seconds: float = 30, app: str = GOOD, *, by_row: bool = True) -> Report:
    """Measure the polite client alone and beside the flood, `seconds` each.

    `by_row` shows a device beside it whose cost grows with the rows.
    """
    report = Report("Fairness")
    seen = alone_and_beside(seconds, app)
    alone_s, beside_s = seen.p99_s()
    report.notes += [_note(_FIXED, seconds, seen)]
    report.promise(
        "p99 of the polite client",
        f"<= {_TIMES:.0f} x alone",
        f"{beside_s * 1000:.0f} ms, {beside_s / alone_s:.2f} x {alone_s * 1000:.0f} ms",
        held=beside_s <= _TIMES * alone_s,
    )
    report.promise(
        "requests of the polite client that failed",
        "0",
        f"{seen.failed()} of {len(seen.alone) + len(seen.beside):,}",
        held=not seen.failed(),
    )
    lost = [one for one in seen.flood if not one.right]
    report.promise("flooding requests without an answer", "0", len(lost), held=not lost)
    if by_row:
        seen = alone_and_beside(seconds, app, _BY_ROW)
        alone_s, beside_s = seen.p99_s()
        report.notes += [
            "",
            f"{_note(_BY_ROW, seconds, seen)} Not promised, as a full batch takes "
            f"longer: {beside_s / alone_s:.2f} x, {alone_s * 1000:.0f} ms alone and "
            f"{beside_s * 1000:.0f} ms beside the flood.",
        ]
    return report


def alone_and_beside(
    seconds: float,
    app: str = GOOD,
    cost_ms: tuple[float, float] = _FIXED,
    batch: int = _MAX_BATCH_SIZE,
) -> Polite:
    """The polite client alone, then beside the flood, `seconds` each.

    A batch holds `batch` rows and costs `cost_ms`, and something for each row.
    """
    base_ms, per_row_ms = cost_ms
    batch_s = (base_ms + per_row_ms * batch) / 1000
    rate = _POLITE_SHARE * batch / batch_s
    settings: dict[str, Any] = {"max_batch_size": str(batch)}
    with simulated(device(*cost_ms), *CROWDED, app=app, **settings) as server:
        alone = with_client(server, partial(_send, rate=rate, seconds=seconds, flood=0))
        both = with_client(
            server, partial(_send, rate=rate, seconds=seconds, flood=_FLOOD)
        )
    seen = [one for one in both if one.request.at_s >= _WARM_UP_S]
    return Polite(
        rate,
        [one for one in alone if one.request.at_s >= _WARM_UP_S],
        [one for one in seen if one.request.tag == _POLITE],
        [one for one in seen if one.request.tag == _FLOODING],
    )


async def _send(
    client: Client, rate: float, seconds: float, flood: int
) -> list[Outcome]:
    times = [(at_s, _POLITE) for at_s in poisson(rate, seconds, seed=1)]
    if flood:
        times += [(at_s, _FLOODING) for at_s in poisson(flood * rate, seconds, seed=2)]
    requests = [
        replace(rows_request(at_s, number, headers=f"X-Client-Id: {tag}\r\n"), tag=tag)
        for number, (at_s, tag) in enumerate(sorted(times))
    ]
    return await client.open_loop(requests)


def _p99_s(outcomes: list[Outcome]) -> float:
    return percentile([one.latency_s for one in outcomes if one.is_good()], 99)


def _note(cost_ms: tuple[float, float], seconds: float, seen: Polite) -> str:
    base_ms, per_row_ms = cost_ms
    return (
        f"Simulated device, {base_ms:g} ms + {per_row_ms:g} ms a row, batches of up to "
        f"{_MAX_BATCH_SIZE}, {seconds:.0f} s each. The polite client asks "
        f"{seen.rate:.0f} times a second, the flood {_FLOOD * seen.rate:.0f} times "
        f"(Poisson). The flood got {tally(seen.flood)}."
    )
