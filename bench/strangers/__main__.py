"""`python -m bench.strangers`: what one request of a stranger costs a default server.

Each attack goes to a new server, beside 20 predictions and 5 small pictures a second.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench import machine, report
from bench.fuzz.models import write_models
from bench.strangers.attacks import ATTACKS, Attack
from bench.strangers.bodies import LARGE_ROW
from bench.strangers.meter import Spent
from bench.strangers.run import Cost, measure
from testing.server import ROOT, simulated_models

_HEADING = (
    *("attack", "tree", "answer", "CPU (s)", "after the end (s)"),
    *("memory (MiB)", "kept (MiB)", "p99 (ms)", "max (ms)", "lost", "picture (ms)"),
    "simdjson, NumPy (CPU s)",
)
_BEFORE, _NOW = "before", "now"


def main() -> int:
    """Run it; return 1 if a server could not be measured."""
    options = _options()
    attacks = [each for each in ATTACKS if options.only in each.name]
    folder = report.new_folder(options.out)
    header = report.header(["bench.strangers", *sys.argv[1:]], machine.describe())
    costs, trees = [], {_NOW: ROOT}
    if options.before and options.before.is_dir():
        trees = {_BEFORE: options.before.resolve(), **trees}
    elif options.before:
        costs = _read(options.before, attacks)
    report.interrupt_on_signals()
    with tempfile.TemporaryDirectory() as models:
        _write_models(Path(models))
        progress = report.Progress(len(trees) * len(attacks))
        try:
            for tree, root in trees.items():
                for attack in attacks:
                    cost = _measured(tree, root, Path(models), attack)
                    costs.append(cost)
                    progress.end(f"{attack.name}, {tree}", " | ".join(_row(cost)[2:]))
                    _write(folder, header, costs)
        except KeyboardInterrupt:
            return report.STOPPED
    print("\n" + (folder / "strangers.md").read_text())
    return 1 if any(not cost.answers for cost in costs) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.strangers")
    parser.description = __doc__
    add = parser.add_argument
    add("--before", type=Path, help="another tree, served too, or figures.json of it")
    add("--only", default="", metavar="WORDS", help="attacks with this in their name")
    add("--out", type=Path, help="the folder to write to (reports/<date>)")
    return parser.parse_args()


def _write_models(folder: Path) -> None:
    """Write the digits model, one with strings, and a simulated one of large rows."""
    write_models(folder)
    shape = {"input_shape": [LARGE_ROW], "outputs": 1}
    simulated_models(folder, large={"base_ms": 0, "per_row_ms": 0, **shape})


def _measured(tree: str, root: Path, models: Path, attack: Attack) -> Cost:
    try:
        return measure(tree, root, models, attack)
    except report.PROBLEMS as error:
        return Cost(tree, attack.name, problem=report.one_line(error))


def _read(file: Path, attacks: Sequence[Attack]) -> list[Cost]:
    """Return the costs of an earlier tree from the JSON of an earlier run."""
    names = [attack.name for attack in attacks]
    costs = []
    for each in json.loads(file.read_text())["costs"]:
        cost = Cost(**{**each, "spent": Spent(*each["spent"])})
        if cost.tree == _BEFORE and cost.attack in names:
            costs.append(cost)
    return costs


def _write(folder: Path, header: str, costs: Sequence[Cost]) -> None:
    """Write the table, attack by attack, and the JSON."""
    names = [attack.name for attack in ATTACKS]
    ordered = sorted(costs, key=lambda cost: names.index(cost.attack))
    lines = [header, "", *report.table(_HEADING, map(_row, ordered)), ""]
    (folder / "strangers.md").write_text("\n".join(lines))
    content = {"header": header, "costs": [asdict(cost) for cost in costs]}
    (folder / "strangers.json").write_text(json.dumps(content, indent=1))


def _row(cost: Cost) -> list[str]:
    """Return the cells below _HEADING."""
    ends = ", ".join(f"{count} x {end}" for end, count in cost.answers.items())
    answer = f"{ends} in {cost.answered_s:.2f} s" if ends else ""
    spent, ratio = cost.spent, ""
    if cost.reference_s:
        times = spent.cpu_s / cost.reference_s
        ratio = f"{cost.reference_s:.2f}: {times:.1f} x"
    return [
        cost.attack,
        cost.tree,
        "; ".join(filter(None, (answer, cost.problem))),
        f"{spent.cpu_s:.1f}",
        f"{spent.late_cpu_s:.1f}",
        f"{spent.peak_mib:.0f}",
        f"{spent.kept_mib:.0f}",
        f"{cost.polite_p99_s * 1000:.0f}",
        f"{cost.polite_max_s * 1000:.0f}",
        f"{cost.polite_lost} of {cost.polite}",
        f"{cost.picture_max_s * 1000:.0f}",
        ratio,
    ]


if __name__ == "__main__":
    sys.exit(main())
