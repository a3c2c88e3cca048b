"""Run one check: `python -m bench.reliability overload`; status 1: a promise broke."""

import argparse
import sys
from collections.abc import Callable

from bench.reliability.chaos import chaos
from bench.reliability.disconnects import disconnects
from bench.reliability.fairness import fairness
from bench.reliability.out_of_memory import out_of_memory
from bench.reliability.overload import overload
from bench.reliability.poison import poison
from bench.reliability.report import Report
from bench.reliability.soak import soak
from bench.report import header
from testing.broken import FAULTS, app_with

# Each check, and what can be chosen of it.
_CHECKS: dict[Callable[..., Report], str] = {
    overload: "seconds",
    fairness: "seconds",
    disconnects: "clients",
    out_of_memory: "seconds",
    poison: "rounds",
    chaos: "seconds",
    soak: "seconds",
}


def main() -> int:
    """Run the check of the command line, and print its table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.reliability",
        description="Check what Basket promises under load and faults.",
    )
    checks = parser.add_subparsers(required=True, metavar="CHECK")
    for check, option in _CHECKS.items():
        first_line = (check.__doc__ or "").partition("\n")[0]
        one = checks.add_parser(check.__name__, help=first_line)
        one.set_defaults(check=check)
        kind = float if option == "seconds" else int
        one.add_argument(f"--{option}", type=kind)
        one.add_argument("--fault", choices=FAULTS, help="inject it into the server")
    options = vars(parser.parse_args())
    check, fault = options.pop("check"), options.pop("fault")
    given = {name: value for name, value in options.items() if value is not None}
    if fault is not None:
        given["app"] = app_with(fault)
    print(header(["bench.reliability", *sys.argv[1:]]), end="\n\n")
    report = check(**given)
    print(report.markdown(), flush=True)
    return 1 if report.broken() else 0


if __name__ == "__main__":
    sys.exit(main())
