"""`python -m bench.fuzz --requests 100000`: malformed requests to a new server."""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from bench import machine
from bench.fuzz import models
from bench.fuzz.run import Report, fuzz, senders
from bench.report import header
from testing.server import serving


def main() -> int:
    """Run it; return 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000, help="malformed ones")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    options = parser.parse_args()
    command = ["bench.fuzz", f"--requests={options.requests}", f"--seed={options.seed}"]
    print(header(command, machine.describe()), flush=True)
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
    end = "\n" if report.problems else "\r"
    print(f"{total} malformed requests", end=end, file=sys.stderr, flush=True)


def _show(report: Report) -> None:
    total = report.bad.total()
    sources = ", ".join(f"{count} {name}" for name, count in report.bad.items())
    statuses = sorted(report.statuses.items())
    print(f"\n{total} malformed requests ({sources}) in {report.seconds:.0f} s")
    print(f"{report.good} more that were answered with 200")
    print("statuses: " + ", ".join(f"{status}: {count}" for status, count in statuses))
    print(report.watch)
    for problem in report.problems[:20]:
        print(f"PROBLEM {problem}")


if __name__ == "__main__":
    sys.exit(main())
