"""Fairness: one client floods the server, another sends at its own rate.

The flood sends ten times as often as the polite client, and twice as often as the
device can answer. The polite client waits for the batch that runs and for its own, so
its limit follows from the time of a full batch.
"""

from dataclasses import dataclass, replace

from bench.figures import percentile
from bench.reliability.report import Report, tally
from bench.reliability.server import CROWDED, GOOD, device, simulated, with_client
from testing.open_loop import Client
from testing.open_loop_requests import Outcome, poisson, rows_request

_MAX_BATCH_SIZE = 16
_FLOOD = 10
# Share of the device's capacity.
_POLITE_SHARE = 0.2
_TIMES = 2.0
_WARM_UP_S = 2.0
_POLITE, _FLOODING = "polite", "flooding"
# Milliseconds of a batch, and of each row.
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
        """Return seconds, alone and beside the flood."""
        return _p99_s(self.alone), _p99_s(self.beside)

    def failed(self) -> list[Outcome]:
        """Return the polite client's requests without a right answer."""
        return [one for one in (*self.alone, *self.beside) if not one.is_good()]


def fairness(seconds: float = 30, app: str = GOOD) -> Report:
    """Measure the polite client alone and beside the flood, `seconds` each."""
    seen = alone_and_beside(seconds, app)
    alone_s, beside_s = seen.p99_s()
    report = Report("Fairness", [_note(_FIXED, seconds, seen)])
    report.promise(
        "p99 of the polite client",
        f"<= {_TIMES:.0f} x alone",
        f"{beside_s * 1000:.0f} ms, {beside_s / alone_s:.2f} x {alone_s * 1000:.0f} ms",
        beside_s <= _TIMES * alone_s,
    )
    polite = len(seen.alone) + len(seen.beside)
    report.none_of("requests of the polite client that failed", seen.failed(), polite)
    lost = [one for one in seen.flood if not one.right]
    report.none_of("flooding requests without an answer", lost)
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
    """Measure the polite client alone, then beside the flood, `seconds` each.

    `cost_ms` is the time of a batch and of each row; `batch` is the largest size.
    """
    base_ms, per_row_ms = cost_ms
    rate = _POLITE_SHARE * batch * 1000 / (base_ms + per_row_ms * batch)
    simulation = device(base_ms, per_row_ms)
    with simulated(simulation, *CROWDED, app=app, max_batch_size=str(batch)) as server:
        alone = with_client(server, _send, rate, seconds, flood=0)
        both = with_client(server, _send, rate, seconds, flood=_FLOOD)
    return Polite(
        rate,
        alone,
        [one for one in both if one.request.tag == _POLITE],
        [one for one in both if one.request.tag == _FLOODING],
    )


async def _send(
    client: Client, rate: float, seconds: float, flood: int
) -> list[Outcome]:
    """Return the outcomes after the warm-up."""
    times = [(at_s, _POLITE) for at_s in poisson(rate, seconds, seed=1)]
    if flood:
        times += [(at_s, _FLOODING) for at_s in poisson(flood * rate, seconds, seed=2)]
    requests = [
        replace(rows_request(at_s, number, headers=f"X-Client-Id: {tag}\r\n"), tag=tag)
        for number, (at_s, tag) in enumerate(sorted(times))
    ]
    outcomes = await client.open_loop(requests)
    return [one for one in outcomes if one.request.at_s >= _WARM_UP_S]


def _p99_s(outcomes: list[Outcome]) -> float:
    return percentile([one.latency_s for one in outcomes if one.is_good()], 99)


def _note(cost_ms: tuple[float, float], seconds: float, seen: Polite) -> str:
    base_ms, per_row_ms = cost_ms
    return (
        f"Simulated device, {base_ms:g} ms + {per_row_ms:g} ms a row, batches of up to "
        f"{_MAX_BATCH_SIZE}, {seconds:.0f} s each. The polite client sends "
        f"{seen.rate:.0f} requests/s, the flood {_FLOOD * seen.rate:.0f} (Poisson). "
        f"The flood got {tally(seen.flood)}."
    )
