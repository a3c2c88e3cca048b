"""Run one check: python -m bench.reliability overload; exit status 1: not held."""

import argparse
import datetime
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.reliability.backlog import backlog
from bench.reliability.chaos import chaos
from bench.reliability.disconnects import disconnects
from bench.reliability.fairness import fairness
from bench.reliability.nginx import nginx
from bench.reliability.out_of_memory import out_of_memory
from bench.reliability.overload import overload, sweep
from bench.reliability.poison import poison
from bench.reliability.report import Report
from bench.reliability.soak import soak
from testing.broken import FAULTS, app_with

_SHARES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)
# Each check, and what may be said about its size beside the fault.
_CHECKS: dict[Callable[..., Report], dict[str, type]] = {
    overload: {"seconds": float},
    fairness: {"seconds": float},
    disconnects: {"clients": int, "batch_s": float},
    out_of_memory: {"seconds": float},
    poison: {"rounds": int, "marked": int},
    chaos: {"seconds": float},
    soak: {"seconds": float},
    backlog: {"clients": int},
    nginx: {"seconds": float},
}


def main() -> int:
    """Run the check that the command line names, and print its table."""
    options = vars(_parser().parse_args())
    check, fault = options.pop("check"), options.pop("fault")
    plot = options.pop("plot", None)
    given: dict[str, Any] = {name: n for name, n in options.items() if n is not None}
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{today}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    if fault is not None:
        given["app"] = app_with(fault)
    report = check(**given)
    print(report.markdown(), flush=True)
    if plot is not None:
        _draw(plot)
    return 1 if report.broken() else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.reliability",
        description="Check what Basket promises under load and faults.",
    )
    checks = parser.add_subparsers(required=True, metavar="CHECK")
    for check, sizes in _CHECKS.items():
        told = (check.__doc__ or "").partition("\n")[0]
        one = checks.add_parser(check.__name__, help=told, description=check.__doc__)
        one.set_defaults(check=check)
        for name, kind in sizes.items():
            one.add_argument(f"--{name.replace('_', '-')}", type=kind)
        one.add_argument("--fault", choices=FAULTS, help="check a server that has it")
        if check is overload:
            told = "draw goodput over the offered load into this PNG, too"
            one.add_argument("--plot", type=Path, help=told)
    return parser


def _draw(file: Path) -> None:
    """Measure a range of loads; about four minutes."""
    from bench.reliability.plot import draw  # noqa: PLC0415 # matplotlib is slow

    peak, loads = sweep(_SHARES)
    draw(peak, loads, file)
    print("\n| offered (requests/s) | in time (1/s) | refused (1/s) |\n|---|---|---|")
    for load in loads:
        rates = f"{load.goodput():.0f} | {load.refusals():.0f}"
        print(f"| {load.offered:.0f} | {rates} |")


if __name__ == "__main__":
    sys.exit(main())
