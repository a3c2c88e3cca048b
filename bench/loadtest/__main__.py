"""`python -m bench.loadtest`, which `make loadtest` calls."""

import argparse
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.arguments import positive
from bench.loadtest import machine, report
from bench.loadtest.measurement import Campaign
from bench.loadtest.progress import Progress
from bench.loadtest.run import Plan, Run
from bench.loadtest.setups import QUICK_USERS, SETUPS, USERS
from bench.report_folder import new_folder, today
from testing.server import ROOT, simulated_models

# 128 plus the number of SIGINT, as shells have it.
_STOPPED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the report, and give the exit status: 0 if all went well."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(given)
    options.command = _make_command(given)
    with tempfile.TemporaryDirectory() as folder:
        try:
            model = _model_folder(options, Path(folder))
            out = new_folder(options.out)
            (out / "raw").mkdir()
        except OSError as error:
            print(error, file=sys.stderr)
            return 2
        return _measure(options, model, out)


def _measure(options: argparse.Namespace, model: Path, out: Path) -> int:
    setups = [each for each in SETUPS if each.name in (options.setup or [each.name])]
    users = options.users or (QUICK_USERS if options.quick else USERS)
    plan = Plan(
        setups,
        users,
        model,
        quick=options.quick,
        seconds=options.seconds,
        warm_up_s=options.warm_up,
        ready_within_s=options.ready_within,
    )
    campaign = Campaign(
        command=options.command,
        model=model.name,
        simulated=any(model.glob("*/simulated.json")),
        date=today(),
        machine=machine.describe(),
    )
    run = Run(plan, campaign, out / "raw", Progress(len(setups) * len(users)))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: run.stopped.set())
    run.measure()
    report.write(campaign, out, options.price, options.p95_limit, options.rate)
    print(f"the report is in {out}")
    if campaign.stopped:
        print("stopped: the report has what was measured until then")
        return _STOPPED
    return 1 if report.failed(campaign) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.loadtest",
        description="Measure what each set-up of the server does to waiting time.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="1, 5 and 20 users, in under 3 minutes")
    add("--model", help="a model of models/; default: a simulated one of 300 ms")
    add("--price", type=positive, help="dollars for an hour of one instance")
    add("--p95-limit", type=positive, default=1.0, help="seconds; default: 1")
    add("--rate", type=positive, default=100.0, help="requests/s wanted; default: 100")
    add("--out", type=Path, help="a new folder; default: reports/<date>")
    add(
        "--setup",
        action="append",
        choices=[each.name for each in SETUPS],
        help="only this one; may be given several times",
    )
    add("--users", type=_numbers, help="such as 1,5,20")
    add("--seconds", type=positive, help="measure each for so long")
    add("--warm-up", type=positive, help="seconds before each measurement")
    add("--ready-within", type=positive, default=300.0, help="seconds; default: 300")
    # For tests: the report's words are about a device of 300 ms.
    add("--device-ms", type=positive, default=300.0, help=argparse.SUPPRESS)
    return parser


def _make_command(given: Sequence[str]) -> str:
    """The same in the words of the Makefile, but for where the report goes."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--model", "--price", "--out"):
        parser.add_argument(name)
    named, others = parser.parse_known_args(given)
    words = ["make loadtest"]
    if named.model:
        words.append(f"MODEL={shlex.quote(named.model)}")
    if named.price:
        words.append(f"PRICE={named.price}")
    if others:
        words.append(f'ARGS="{" ".join(others)}"')
    return " ".join(words)


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(","))
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1 user")
    return numbers


def _model_folder(options: argparse.Namespace, folder: Path) -> Path:
    """A model folder inside `folder`, which has no other.

    Raises:
        FileNotFoundError: no such model; the text says how to make it.
    """
    if options.model is None:
        name = f"simulated-{options.device_ms:g}-ms"
        device = {
            "base_ms": options.device_ms,
            "per_row_ms": 0,
            "input_shape": [64],
            "outputs": 10,
        }
        simulated_models(folder, **{name: device})
        return folder / name
    models = Path(os.environ.get("BASKET_MODEL_DIR") or ROOT / "models")
    source = models / options.model
    if not source.is_dir():
        how = f"save one as {options.model}/1/model.keras"
        if options.model == "big":
            how = "make it: .venv/bin/flask --app wsgi models make big --latency-ms 300"
        raise FileNotFoundError(f"no model {options.model} in {models}; {how}")
    link = folder / options.model
    link.symlink_to(source.resolve())
    return link


if __name__ == "__main__":
    sys.exit(main())
