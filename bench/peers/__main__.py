"""Measure Basket beside its peers: `make bench`, or `python -m bench.peers`."""

import argparse
import contextlib
import json
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from importlib import metadata
from pathlib import Path

from bench import wrk
from bench.arguments import positive
from bench.environments import NotInstalled
from bench.loadtest import machine
from bench.loadtest.progress import Progress, about
from bench.peers import others, plots, tables
from bench.peers.cells import Campaign, summed_up
from bench.peers.loads import LOADS
from bench.peers.plan import Plan
from bench.peers.run import Run
from bench.peers.set_ups import SET_UPS, with_before
from bench.report_folder import new_folder, today
from testing.server import ROOT

# 128 plus the number of SIGINT, as shells have it.
_STOPPED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the report, and give the exit status: 0 if all went well."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(given)
    wrk.require()
    try:
        out = new_folder(options.out)
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    set_ups = [SET_UPS[name] for name in options.servers]
    with tempfile.TemporaryDirectory() as folder:
        if options.before:
            tree = _tree(options.before, Path(folder))
            set_ups = list(with_before(set_ups, options.before, tree))
        plan = Plan(
            [LOADS[name] for name in options.loads],
            set_ups,
            rounds=options.rounds or (1 if options.quick else 3),
            seconds=options.seconds,
            quick=options.quick,
        )
        campaign = Campaign(
            shlex.join(["python", "-m", "bench.peers", *given]),
            today(),
            {**machine.describe(), **_versions(plan)},
            plan.timing(plan.loads[0], plan.loads[0].clients[0]).measured_s,
            plan.rounds,
        )
        print(f"{about(plan.total_s())}, and what installing the peers takes")
        _install(plan)
        Run(plan, campaign, Path(folder), Progress(plan.cells())).measure()
    _write(campaign, out)
    print(f"the report is in {out}")
    if campaign.stopped:
        return _STOPPED
    return 0 if all(cell.sound for cell in campaign.cells) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description="Measure Basket beside other servers of the same Keras model.",
    )
    add = parser.add_argument
    usual = [name for name, each in SET_UPS.items() if not each.by_choice]
    add(
        "--loads",
        type=_names(LOADS),
        default=list(LOADS),
        help=f"such as tiny,mnet; default: all of {', '.join(LOADS)}",
    )
    add(
        "--servers",
        type=_names(SET_UPS),
        default=usual,
        help=f"of {', '.join(SET_UPS)}; default: all up to {usual[-1]}",
    )
    add("--before", type=_commit, help="serve Basket from this commit's tree, too")
    add("--quick", action="store_true", help="one short round, one setting each")
    add("--seconds", type=positive, help="measure each for so long; default: by load")
    add("--rounds", type=_count, help="default: 3")
    add("--out", type=Path, help="a new folder; default: reports/<date>")
    return parser


def _names(known: Collection[str]) -> Callable[[str], list[str]]:
    """A type for argparse: names between commas, in the order that `known` has."""

    def names(text: str) -> list[str]:
        given = text.split(",")
        for name in given:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"{name!r} is none of: {', '.join(known)}"
                )
        return [name for name in known if name in given]

    return names


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _commit(text: str) -> str:
    """Return the abbreviated hash of a commit, a type for argparse."""
    command = ["git", "rev-parse", "--short", f"{text}^{{commit}}"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    if ran.returncode:
        raise argparse.ArgumentTypeError(f"{text!r} is no commit of {ROOT}")
    return ran.stdout.strip()


def _tree(commit: str, folder: Path) -> Path:
    """Write a commit's files into a new folder below `folder`."""
    archive, tree = folder / "before.zip", folder / "before"
    command = ["git", "archive", f"--output={archive}", commit]
    subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603
    shutil.unpack_archive(archive, tree)
    return tree


def _install(plan: Plan) -> None:
    """Make the peers' environments first, so that no server runs meanwhile."""
    for each in plan.set_ups:
        if others.is_peer(each.name):
            try:
                others.install(each.name)
            except NotInstalled as error:
                print(error)


def _versions(plan: Plan) -> dict[str, str]:
    """Versions of the peers, and of what Basket may be run with."""
    found = {
        each.title: others.version(each.name)
        for each in plan.set_ups
        if others.is_peer(each.name)
    }
    with contextlib.suppress(metadata.PackageNotFoundError):
        found["openvino"] = metadata.version("openvino")
    return found


def _write(campaign: Campaign, out: Path) -> None:
    (out / "peers.json").write_text(json.dumps(campaign.as_json(), indent=1))
    plots.draw(summed_up(campaign.cells), out / "peers.png")
    report = tables.markdown(campaign)
    (out / "peers.md").write_text(f"{report}\n")
    print(f"\n{report}\n")


if __name__ == "__main__":
    sys.exit(main())
