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
# Milliseconds of a row, beside 50 ms of a batch: small, and as much as not promised.
_SMALL_MS, _LARGE_MS = 0.1, 2.0


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

    def note(self, row_ms: float, seconds: float) -> str:
        """Return how it was measured."""
        return (
            f"Simulated device, 50 ms + {row_ms:g} ms a row, batches of up to "
            f"{_MAX_BATCH_SIZE}, {seconds:.0f} s each. The polite client sends "
            f"{self.rate:.0f} requests/s, the flood {_FLOOD * self.rate:.0f} "
            f"(Poisson). The flood got {tally(self.flood)}."
        )


def fairness(seconds: float = 30, app: str = GOOD) -> Report:
    """Measure the polite client alone and beside the flood, `seconds` each."""
    seen = alone_and_beside(seconds, app)
    alone_s, beside_s = seen.p99_s()
    report = Report("Fairness", seen.note(_SMALL_MS, seconds))
    report.promise(
        "p99 of the polite client",
        f"<= {_TIMES:.0f} x alone",
        f"{beside_s * 1000:.0f} ms, {beside_s / alone_s:.2f} x {alone_s * 1000:.0f} ms",
        beside_s <= _TIMES * alone_s,
    )
    both = [*seen.alone, *seen.beside]
    report.all_good("requests of the polite client that failed", both)
    lost = [one for one in seen.flood if not one.right]
    report.none_of("flooding requests without an answer", lost)
    seen = alone_and_beside(seconds, app, _LARGE_MS)
    alone_s, beside_s = seen.p99_s()
    report.notes += [
        "",
        f"{seen.note(_LARGE_MS, seconds)} Not promised, as a full batch takes "
        f"longer: {beside_s / alone_s:.2f} x, {alone_s * 1000:.0f} ms alone and "
        f"{beside_s * 1000:.0f} ms beside the flood.",
    ]
    return report


def alone_and_beside(
    seconds: float,
    app: str = GOOD,
    row_ms: float = _SMALL_MS,
    batch: int = _MAX_BATCH_SIZE,
) -> Polite:
    """Measure the polite client alone, then beside the flood, `seconds` each.

    `batch` is the largest size of a batch.
    """
    rate = _POLITE_SHARE * batch * 1000 / (50 + row_ms * batch)
    settings = {"app": app, "max_batch_size": str(batch)}
    with simulated(device(50, row_ms), *CROWDED, **settings) as server:
        alone = with_client(server, _send, rate, seconds, flood=0)
        both = with_client(server, _send, rate, seconds, flood=_FLOOD)
    by_tag = {
        tag: [one for one in both if one.request.tag == tag]
        for tag in (_POLITE, _FLOODING)
    }
    return Polite(rate, alone, by_tag[_POLITE], by_tag[_FLOODING])


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
