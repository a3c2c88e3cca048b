"""`python -m bench.loadtest`, which `make loadtest` calls."""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.loadtest import report
from bench.loadtest.run import LoadTest, Plan
from bench.loadtest.setups import QUICK_USERS, SETUPS, USERS
from bench.loadtest.tables import Wanted
from bench.report import header, new_folder, positive
from testing.server import ROOT, simulated_models


def main(given: Sequence[str]) -> int:
    """Measure, write the report, and return the exit status: 0 if all was right."""
    options = _parser().parse_args(given)
    with tempfile.TemporaryDirectory() as folder:
        try:
            model = _model_folder(options, Path(folder) / "models")
            out = new_folder(options.out)
        except OSError as error:
            print(error, file=sys.stderr)
            return 2
        setups = options.setup or list(SETUPS)
        plan = Plan(
            [SETUPS[name] for name in setups],
            options.users or (QUICK_USERS if options.quick else USERS),
            model,
            quick=options.quick,
            seconds=options.seconds,
            warm_up_s=options.warm_up,
            captured=options.captured,
            ready_within_s=options.ready_within,
        )
        campaign = LoadTest(
            header(["bench.loadtest", *given]),
            len(plan.setups) * len(plan.users),
            model=model.name,
            simulated=any(model.glob("*/simulated.json")),
        )
        campaign.measure_all(plan, out / "raw")
    price = options.price
    wanted = Wanted(price, options.p95_limit, options.rate) if price else None
    report.write(campaign, out, wanted)
    print(f"the report is in {out}")
    return campaign.status()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.loadtest",
        description="Measure what each set-up of the server does to waiting time.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="1, 5 and 20 users, in under 3 minutes")
    add("--model", help="a model of models/; default: a simulated one of 300 ms")
    add("--captured", type=Path, help="send the captured requests in it, not random")
    add("--price", type=positive, help="dollars for an hour of one instance")
    add("--p95-limit", type=positive, default=1.0, help="seconds; default: 1")
    add("--rate", type=positive, default=100.0, help="requests/s wanted; default: 100")
    add("--out", type=Path, help="a new folder; default: reports/<date>")
    words = "only this one; may be given several times"
    add("--setup", action="append", choices=SETUPS, help=words)
    add("--users", type=_numbers, help="such as 1,5,20")
    add("--seconds", type=positive, help="measure each for so long")
    add("--warm-up", type=positive, help="seconds before each measurement")
    add("--ready-within", type=positive, default=300.0, help="seconds; default: 300")
    # For tests: the report's words are about a device of 300 ms.
    add("--device-ms", type=positive, default=300.0, help=argparse.SUPPRESS)
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(","))
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1 user")
    return numbers


def _model_folder(options: argparse.Namespace, folder: Path) -> Path:
    """Return a model folder in `folder`, without another model beside it.

    Raises:
        FileNotFoundError: there is no such model; the text says how to make it.
    """
    if options.model is None:
        name = f"simulated-{options.device_ms:g}-ms"
        device = {"base_ms": options.device_ms, "per_row_ms": 0}
        shape = {"input_shape": [64], "outputs": 10}
        simulated_models(folder, **{name: device | shape})
        return folder / name
    models = Path(os.environ.get("BASKET_MODEL_DIR") or ROOT / "models")
    source = models / options.model
    if not source.is_dir():
        how = f"save one as {options.model}/1/model.keras"
        if options.model == "big":
            how = "make it: .venv/bin/flask --app wsgi models make big --latency-ms 300"
        raise FileNotFoundError(f"no model {options.model} in {models}; {how}")
    folder.mkdir()
    link = folder / options.model
    link.symlink_to(source.resolve())
    return link


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
