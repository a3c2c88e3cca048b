"""`python -m bench.strangers`: what one request of a stranger costs a default server.

Each attack goes to a new server, beside 20 predictions and 5 small pictures a second.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import machine, report
from bench.fuzz.models import write_models
from bench.strangers.attacks import ATTACKS
from bench.strangers.bodies import LARGE_ROW
from bench.strangers.run import measure
from testing.server import simulated_models


def main() -> int:
    """Print a table; return 1 if a server could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.strangers")
    parser.description = __doc__
    words = "attacks with this in their name"
    parser.add_argument("--only", default="", metavar="WORDS", help=words)
    only = parser.parse_args().only
    attacks = [each for each in ATTACKS if only in each.name]
    print(report.header(["bench.strangers", *sys.argv[1:]], machine.describe()))
    report.interrupt_on_signals()
    progress = report.Progress(len(attacks), sys.stderr)
    costs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        write_models(models)
        shape = {"input_shape": [LARGE_ROW], "outputs": 1}
        simulated_models(models, large={"base_ms": 0, "per_row_ms": 0, **shape})
        for attack in attacks:
            try:
                figures = measure(models, attack)
            except report.PROBLEMS as error:
                figures = {"answer": report.one_line(error)}
            progress.end(attack.name, figures)
            costs.append({"attack": attack.name, **figures})
    heading = max(costs, key=len)
    rows = ([cost.get(name, "") for name in heading] for cost in costs)
    print("", *report.table([*heading], rows), sep="\n")
    return 1 if any("CPU s" not in cost for cost in costs) else 0


if __name__ == "__main__":
    sys.exit(main())
