"""Run one check: `python -m bench.reliability overload`; status 1: a promise broke."""

import argparse
import sys
from collections.abc import Callable
from inspect import signature

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

# The first argument of each is an option.
_CHECKS: tuple[Callable[..., Report], ...] = (
    *(overload, fairness, disconnects, out_of_memory, poison, chaos, soak),
)


def main() -> int:
    """Run the check of the command line, and print its table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.reliability",
        description="Check what Basket promises under load and faults.",
    )
    checks = parser.add_subparsers(required=True, metavar="CHECK")
    for check in _CHECKS:
        first_line = (check.__doc__ or "").partition("\n")[0]
        one = checks.add_parser(check.__name__, help=first_line)
        one.set_defaults(check=check)
        option = next(iter(signature(check).parameters.values()))
        kind = {"type": option.annotation, "default": option.default}
        one.add_argument(f"--{option.name}", **kind, help="default: %(default)s")
        one.add_argument("--fault", choices=FAULTS, help="inject it into the server")
    options = vars(parser.parse_args())
    check, fault = options.pop("check"), options.pop("fault")
    if fault is not None:
        options["app"] = app_with(fault)
    print(header(["bench.reliability", *sys.argv[1:]]), end="\n\n")
    report = check(**options)
    print(report.markdown(), flush=True)
    return 1 if report.broken() else 0


if __name__ == "__main__":
    sys.exit(main())
