"""`python -m bench.strangers`: what one request of a stranger costs a default server.

Each attack goes to a new server, beside 20 predictions and 5 small pictures a second.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import machine, report
from bench.fuzz.models import write_models
from bench.strangers.attacks import ATTACKS, Attack
from bench.strangers.bodies import LARGE_ROW
from bench.strangers.run import measure
from testing.server import ROOT, simulated_models

_NAMES = [attack.name for attack in ATTACKS]


def main() -> int:
    """Run it; return 1 if a server could not be measured."""
    options = _options()
    attacks = [each for each in ATTACKS if options.only in each.name]
    folder = report.new_folder(options.out)
    header = report.header(["bench.strangers", *sys.argv[1:]], machine.describe())
    trees, costs = {"now": ROOT}, []
    if options.before and options.before.is_file():
        names = [attack.name for attack in attacks]
        known = json.loads(options.before.read_text())["costs"]
        before = (each for each in known if each["tree"] == "before")
        costs = [each for each in before if each["attack"] in names]
    elif options.before:
        trees = {"before": options.before.resolve(), **trees}
    report.interrupt_on_signals()
    progress = report.Progress(len(trees) * len(attacks))
    try:
        for cost in _measured(trees, attacks):
            progress.end(f"{cost['attack']}, {cost['tree']}", str(cost))
            costs.append(cost)
            _write(folder, header, costs)
    except KeyboardInterrupt:
        return report.STOPPED
    print("\n" + (folder / "strangers.md").read_text())
    return 1 if any("CPU s" not in cost for cost in costs) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.strangers")
    parser.description = __doc__
    add = parser.add_argument
    add("--before", type=Path, help="another tree, served too, or JSON with its costs")
    add("--only", default="", metavar="WORDS", help="attacks with this in their name")
    add("--out", type=Path, help="the folder to write to (reports/<date>)")
    return parser.parse_args()


def _measured(
    trees: dict[str, Path], attacks: list[Attack]
) -> Iterator[dict[str, Any]]:
    """Yield the figures of each attack on each tree, or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        write_models(models)
        shape = {"input_shape": [LARGE_ROW], "outputs": 1}
        simulated_models(models, large={"base_ms": 0, "per_row_ms": 0, **shape})
        for tree, root in trees.items():
            for attack in attacks:
                try:
                    figures = measure(root, models, attack)
                except report.PROBLEMS as error:
                    figures = {"answer": report.one_line(error)}
                yield {"attack": attack.name, "tree": tree, **figures}


def _write(folder: Path, header: str, costs: Sequence[dict[str, Any]]) -> None:
    """Write the table, attack by attack, and the JSON."""
    heading = max(costs, key=len)
    ordered = sorted(costs, key=lambda cost: _NAMES.index(cost["attack"]))
    rows = ([cost.get(name, "") for name in heading] for cost in ordered)
    table = report.table([*heading], rows)
    (folder / "strangers.md").write_text("\n".join([header, "", *table, ""]))
    content = {"header": header, "costs": costs}
    (folder / "strangers.json").write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    sys.exit(main())
