"""Measure Basket beside its peers: `make bench`, or `python -m bench.peers`."""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from bench.peers import tables
from bench.peers.environments import pinned_version, python_of
from bench.peers.loads import LOADS
from bench.peers.run import Comparison, Plan
from bench.peers.servers import PEERS, SET_UPS, with_before
from bench.report import header, new_folder, positive, versions
from testing.server import ROOT


def main(given: Sequence[str]) -> int:
    """Measure, write the report, and return the exit status: 0 if all was right."""
    options = _parser().parse_args(given)
    if not shutil.which("wrk"):
        print("this benchmark wants Debian's package wrk", file=sys.stderr)
        return 2
    try:
        out = new_folder(options.out)
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    peers = [name for name in options.servers if name in PEERS]
    for name in peers:
        # Before the first server runs. The report gives the error of a failed install.
        with suppress(subprocess.CalledProcessError):
            python_of(name)
    pins = {name: pinned_version(name) for name in peers}
    line = header(["bench.peers", *given], pins | versions(["openvino"]))
    with tempfile.TemporaryDirectory() as folder:
        set_ups = [SET_UPS[name] for name in options.servers]
        if options.before:
            tree = _tree(options.before, Path(folder))
            set_ups = list(with_before(set_ups, options.before, tree))
        rounds = 1 if options.quick else options.rounds
        loads = [LOADS[name] for name in options.loads]
        plan = Plan(loads, set_ups, rounds, options.seconds, options.quick)
        campaign = Comparison(line, plan.cells(), rounds=rounds)
        campaign.measure_all(plan, Path(folder))
    (out / "peers.json").write_text(json.dumps(asdict(campaign), indent=1))
    report = tables.markdown(campaign)
    (out / "peers.md").write_text(f"{report}\n")
    print(f"\n{report}\n\nthe report is in {out}")
    return campaign.status()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description="Measure Basket beside other servers of the same Keras model.",
    )
    add = parser.add_argument
    for name, known in (("--loads", LOADS), ("--servers", SET_UPS)):
        words = f"default: all of {','.join(known)}"
        add(name, type=_names(known), default=list(known), help=words)
    add("--before", type=_commit, help="serve Basket from this commit's tree, too")
    add("--quick", action="store_true", help="one short round, one setting each")
    counts = range(1, 100)
    rounds = "so many by turns; default: 3"
    add("--rounds", type=int, choices=counts, metavar="N", default=3, help=rounds)
    add("--seconds", type=positive, help="measure each for so long; default: by load")
    add("--out", type=Path, help="a new folder; default: reports/<date>")
    return parser


def _names(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return an argparse type: names between commas, in the order of `known`."""

    def names(text: str) -> list[str]:
        given = text.split(",")
        for name in given:
            if name not in known:
                words = f"{name!r} is none of: {', '.join(known)}"
                raise argparse.ArgumentTypeError(words)
        return [name for name in known if name in given]

    return names


def _commit(text: str) -> str:
    """Return the abbreviated hash of a commit; an argparse type."""
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
