"""`python -m bench.fuzz --requests 100000`: bad requests to a server of its own."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from bench.fuzz import models
from bench.fuzz.run import Report, fuzz, senders
from testing.server import serving


def main() -> int:
    """Run it; 1 where something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000, help="bad ones")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        models.write_models(Path(folder))
        threads = f"--threads={models.THREADS}"
        with (
            serving(threads, model_dir=folder, **models.SETTINGS) as server,
            senders() as pool,
        ):
            report = fuzz(server, pool, options.requests, options.seed, _progress)
    _show(report)
    return 1 if report.problems else 0


def _progress(report: Report) -> None:
    total = report.bad.total()
    rate = total / report.seconds
    end = "\n" if report.problems else "\r"
    print(f"{total} bad requests, {rate:.0f}/s", end=end, file=sys.stderr, flush=True)


def _show(report: Report) -> None:
    sources = ", ".join(f"{count} {name}" for name, count in report.bad.items())
    print(f"\n{report.bad.total()} bad requests ({sources}) in {report.seconds:.0f} s")
    print(f"{report.good} more that were answered with 200")
    statuses = sorted(report.statuses.items())
    print("statuses: " + ", ".join(f"{status}: {count}" for status, count in statuses))
    print(
        f"good client: {report.good_client_answers} right answers, the slowest in "
        f"{report.good_client_slowest_s:.2f} s"
    )
    print(
        f"memory of the worker: {report.largest_mib:.0f} MiB at most, "
        f"{report.growth_mib:+.0f} MiB since the first tenth"
    )
    for problem in report.problems[:20]:
        print(f"PROBLEM {problem}")


if __name__ == "__main__":
    sys.exit(main())
