"""Fairness: one client floods the server, another sends at its own rate.

The flood sends ten times as often as the polite client, and twice as often as the
device can answer. The polite client waits for the batch that runs and for its own, so
its limit follows from the time of a full batch.
"""

from dataclasses import dataclass, replace

from bench.figures import percentile
from bench.reliability.report import Report, tally
from bench.reliability.server import CROWDED, with_client
from testing.open_loop import Client
from testing.open_loop_requests import Outcome, poisson, rows_request
from testing.simulated import GOOD, device, simulated

_MAX_BATCH_SIZE = 16
_BASE_MS, _ROW_MS = 50, 0.1
_FLOOD = 10
# Share of the device's capacity.
_POLITE_SHARE = 0.2
_TIMES = 2.0
_WARM_UP_S = 2.0
_POLITE, _FLOODING = "polite", "flooding"


@dataclass(frozen=True)
class Polite:
    """What the polite client saw alone and beside the flood."""

    rate: float
    alone: list[Outcome]
    beside: list[Outcome]
    flood: list[Outcome]


def fairness(seconds: float = 30, app: str = GOOD) -> Report:
    """Measure the polite client alone and beside the flood, `seconds` each."""
    seen = alone_and_beside(seconds, app)
    alone_s, beside_s = _p99_s(seen.alone), _p99_s(seen.beside)
    report = Report(
        "Fairness",
        f"Simulated device, {_BASE_MS} ms + {_ROW_MS:g} ms a row, batches of up to "
        f"{_MAX_BATCH_SIZE}, {seconds:.0f} s each. The polite client sends "
        f"{seen.rate:.0f} requests/s, the flood {_FLOOD * seen.rate:.0f} (Poisson). "
        f"The flood got {tally(seen.flood)}.",
    )
    what, alone = "p99 of the polite client", f", which is {alone_s * 1000:.0f} ms"
    report.at_most(what, beside_s / alone_s, _TIMES, " x alone", alone)
    both = [*seen.alone, *seen.beside]
    report.all_good("requests of the polite client that failed", both)
    lost = [one for one in seen.flood if not one.right]
    report.none_of("flooding requests without an answer", lost)
    return report


def alone_and_beside(
    seconds: float, app: str = GOOD, batch: int = _MAX_BATCH_SIZE
) -> Polite:
    """Measure the polite client alone, then beside the flood, `seconds` each.

    `batch` is the largest size of a batch.
    """
    rate = _POLITE_SHARE * batch * 1000 / (_BASE_MS + _ROW_MS * batch)
    settings = {"app": app, "max_batch_size": str(batch)}
    with simulated(device(_BASE_MS, _ROW_MS), *CROWDED, **settings) as server:
        alone = with_client(server, _send, rate, seconds, flood=0)
        both = with_client(server, _send, rate, seconds, flood=_FLOOD)
    beside, flood = (
        [one for one in both if one.request.tag == tag] for tag in (_POLITE, _FLOODING)
    )
    return Polite(rate, alone, beside, flood)


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
