"""python -m bench.promotion: false alarms and detections of rollouts, virtual time.

Two versions with the server's own queue and release rule share a device, and a rollout
moves traffic by steps. Prints how many rollouts of two equal versions went back, and
after how many requests a faulty one did. The figures are the same on every machine.
"""

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from app.promotion.judgment import ALPHA
from app.settings.promotion_config import PromotionConfig
from bench import machine
from bench.promotion.rollout import Fault, Outcome, Rollout, Workload
from bench.report import header, table

# A model on a processor, and ones on a device, at light and heavy load; then what makes
# latencies depend on each other.
WORKLOADS = {
    "30 requests/s, 3 ms + 1 ms a row": Workload(30, 0.003, 0.001),
    "100 requests/s, 3 ms + 1 ms a row": Workload(100, 0.003, 0.001),
    "200 requests/s, 30 ms + 0.5 ms a row": Workload(200, 0.03, 0.0005),
    "300 requests/s, 20 ms + 2 ms a row": Workload(300, 0.02, 0.002),
    "20 requests/s, 300 ms": Workload(20, 0.3, 0.0),
    "50 requests/s, 5 ms + 1 ms, 20 ms more after a rest": Workload(
        50, 0.005, 0.001, after_rest_s=0.02
    ),
    "200 requests/s, 20 ms + 3 ms, tripled in bursts": Workload(
        200, 0.02, 0.003, bursts=True
    ),
    "100 requests/s, 3 ms + 1 ms, pauses up to 1 s": Workload(
        100, 0.003, 0.001, pause_every_s=10, pause_s=1
    ),
    "100 requests/s, 3 ms + 1 ms, pauses up to 5 s": Workload(
        100, 0.003, 0.001, pause_every_s=40, pause_s=5
    ),
    "100 requests/s, 3 ms + 1 ms, 2 % errors on both sides": Workload(
        100, 0.003, 0.001, error_rate=0.02
    ),
}
FAULTS = {
    "all requests fail": Fault(error_rate=1.0),
    "2 % errors": Fault(error_rate=0.02),
    "NaN in 1 %": Fault(nan_rate=0.01),
    "three times slower, device of its own": Fault(slowdown=3.0),
    "three times slower, shared device": Fault(slowdown=3.0),
}
STEPS = (1.0, 10.0, 50.0, 100.0)
# Before a faulty version begins, as if it had been good in steps before.
_BEFORE_S = 60.0
# Of the step of a faulty version; what is seen later counts as not seen.
_LONG_S = 300.0


def false_alarms(load: Workload, seeds: Iterable[int], step_s: float) -> list[Outcome]:
    """Return the outcomes of rollouts of two equal versions, one for each seed."""
    config = PromotionConfig(steps=STEPS, step_s=step_s, watch_s=step_s)
    with ProcessPoolExecutor() as pool:
        return list(pool.map(partial(_run, load, Fault(), config, 0.0), seeds))


def detections(fault: str, share: float, rollouts: int) -> list[Outcome]:
    """Return the outcomes of rollouts that stay at a share, in percent."""
    load = Workload(100, 0.01, 0.001, is_shared="shared" in fault)
    steps = (share,) if share == 100 else (share, 100.0)  # noqa: PLR2004
    config = PromotionConfig(steps=steps, step_s=_LONG_S, watch_s=0)
    with ProcessPoolExecutor() as pool:
        run = partial(_run, load, FAULTS[fault], config, _BEFORE_S)
        return list(pool.map(run, range(rollouts)))


def _run(
    load: Workload, fault: Fault, config: PromotionConfig, before_s: float, seed: int
) -> Outcome:
    return Rollout(load, fault, config, seed).run(before_s)


def _shown(outcomes: Sequence[Outcome], share: float) -> tuple[object, ...]:
    """Return cells: how many were seen at this share, and after how much."""
    seen = [each for each in outcomes if each.reason and each.seconds <= _LONG_S]
    if not seen:
        return f"{share:g} %", f"0 of {len(outcomes)}", "", "", ""
    requests = [each.candidates for each in seen]
    seconds = statistics.median(each.seconds for each in seen)
    found = f"{len(seen)} of {len(outcomes)}"
    middle = f"{statistics.median(requests):,.0f}"
    return f"{share:g} %", found, middle, f"{max(requests):,}", f"{seconds:.1f}"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.promotion")
    parser.add_argument("--rollouts", type=int, default=100, help="of each load")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--step-s", type=float, default=20.0)
    parser.add_argument("--faulty", type=int, default=10, help="of each fault")
    args = parser.parse_args()
    print(header(["bench.promotion", *sys.argv[1:]], machine.describe()), end="\n\n")
    rows: list[tuple[object, ...]] = []
    reasons: Counter[str] = Counter()
    for name, load in WORKLOADS.items() if args.rollouts else ():
        seeds = range(args.first, args.first + args.rollouts)
        found = false_alarms(load, seeds, args.step_s)
        alarms = [each.reason for each in found if each.reason]
        reasons.update(alarms)
        rows.append((name, f"{args.rollouts:,}", len(alarms)))
    number = args.rollouts * len(rows)
    rows.append(("all", f"{number:,}", f"{reasons.total()} ({ALPHA:.1%} allowed)"))
    print(*table(("two equal versions", "rollouts", "went back"), rows), sep="\n")
    print(*reasons, "", sep="\n", flush=True)
    rows = []
    for fault in FAULTS if args.faulty else ():
        for share in STEPS:
            shown = _shown(detections(fault, share, args.faulty), share)
            rows.append((fault, *shown))
    heading = ("fault", "share", "went back", "requests, median", "most", "s, median")
    print(*table(heading, rows), sep="\n")


if __name__ == "__main__":
    main()
