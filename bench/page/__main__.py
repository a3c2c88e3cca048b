"""python -m bench.page: what the page costs a server, or its picture.

`cost` measures what an idle server takes, then the throughput of the load *tiny* with
and without the page open, by turns in one run, and when the page is painted meanwhile.
`picture` takes the pictures of docs/page.md.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import machine, wrk
from bench.page import cost, picture
from bench.report import header, positive


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print, or take the pictures."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(
        prog="python -m bench.page", description=__doc__.partition("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("cost", help="print throughput and times")
    measure.add_argument("--rounds", type=int, default=5)
    measure.add_argument("--seconds", type=positive, default=8, help="of each turn")
    measure.add_argument(
        "--page-alone", action="store_true", help="nobody and the page, nothing else"
    )
    take = commands.add_parser("picture", help="write FILE, and one in dark colors")
    take.add_argument("--out", type=Path, required=True, metavar="FILE")
    take.add_argument("--seconds", type=positive, default=120, help="of load before")
    options = parser.parse_args(given)
    if options.command == "picture":
        picture.take(options.out, options.seconds)
        return
    wrk.require()
    print(f"{header(['bench.page', *given], machine.describe())}\n", flush=True)
    for line in cost.measured(options.rounds, options.seconds, options.page_alone):
        print(line, flush=True)


if __name__ == "__main__":
    main()
