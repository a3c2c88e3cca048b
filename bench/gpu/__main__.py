"""Run the article's experiment on this machine's GPU: `python -m bench.gpu`."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from bench import machine
from bench.figures import Seen
from bench.gpu.run import FULL, LARGEST, PROCESSOR, QUICK, Device, Experiment, gpu
from bench.report import Progress, header, new_folder, table

_NO_GPU = "no NVIDIA GPU here, so nothing is measured; a trial run: --any-device"
_PACKAGES = (
    *("JAX", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin"),
    *("Keras", "NumPy", "Gunicorn"),
)
_SIZE_INCHES = (9.6, 4.2)
_TRIAL = "**A trial run, which shows that the command works: no figures.**"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the report, and return the exit status: 0 if all was right."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu",
        description="Naive and batching beside each other on this machine's GPU.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="a trial run: all of it, but small")
    help_ = "a trial run: on the processor where there is no GPU"
    add("--any-device", action="store_true", help=help_)
    add("--out", type=Path, help="a new folder; default: reports/<date>")
    options = parser.parse_args(given)
    device = gpu() or (PROCESSOR if options.any_device else None)
    missing = [name for name in ("jax", "keras", "matplotlib") if not find_spec(name)]
    if device is None or missing:
        lacks = f"not installed: {', '.join(missing)}; see docs/gpu.md"
        print(_NO_GPU if device is None else lacks, file=sys.stderr)
        return 1
    out = new_folder(options.out)
    plan = QUICK if options.quick else FULL
    card = f"{device.name}, {device.memory_mib:,} MiB"
    where = machine.describe(_PACKAGES) | {"GPU": card, "driver": device.driver}
    line = header(["bench.gpu", *given], where)
    run = Experiment(line, Progress(plan.cells()))
    with tempfile.TemporaryDirectory() as folder, run.until_interrupted():
        kind = "any" if options.any_device else "gpu"
        if not run.measure_all(plan, device, kind, Path(folder)):
            return 1
    text = markdown(run, device, trial=options.quick or options.any_device)
    (out / "gpu.md").write_text(text)
    if run.cells:
        _draw(run, device, out / "gpu.png")
    print(f"\n{text}\nthe report is in {out}")
    return run.status() or int(len(run.memory) < len(plan.steps()))


def markdown(run: Experiment, device: Device, *, trial: bool) -> str:
    """Return the report."""
    users = (
        (*(cell.server, cell.clients.count, *cell.seen.row()), cell.problem or "")
        for cell in run.cells
    )
    alone = run.rates[0][1] if run.rates else 0.0
    sizes = (
        (rows, f"{rows / rate * 1000:.1f}", f"{rate:,.1f}", f"{rate / alone:.1f}")
        for rows, rate in run.rates
    )
    memory = (
        (name, f"{ready:,}", f"{full:,}", f"{full / max(device.memory_mib, 1):.0%}")
        for name, ready, full in run.memory
    )
    full = f"after {LARGEST} rows (MiB)"
    lines = [
        *([_TRIAL, ""] if trial else []),
        run.header,
        f"The recurrent layer has {run.steps:,} steps and {run.weights_mib:,.3g} MiB "
        f"of weights; one row takes {run.row_ms:.1f} ms.",
        *("", "## Users", ""),
        *table(("server", "users", *Seen.HEADING, "problem"), users),
        *("", "## Batch sizes, the engine alone", ""),
        *table(("rows", "a batch (ms)", "rows/s", "x one row"), sizes),
        *("", "## Memory in use, more than before the start", ""),
        *table(("server", "first answer (MiB)", full, "of the card"), memory),
    ]
    return "\n".join([*lines, ""])


def _draw(run: Experiment, device: Device, file: Path) -> None:
    """Draw response time by users, and rows/s by rows in a batch."""
    from bench import plots  # noqa: PLC0415 # slow to import

    series: dict[str, list[tuple[int, float]]] = {}
    for cell in run.cells:
        users, seen = cell.clients.count, cell.seen
        series.setdefault(cell.server, []).append((users, seen.mean_s))
        points = series.setdefault(f"{cell.server}, 95th percentile", [])
        points.append((users, seen.p95_s))
    with plots.saved(file, _SIZE_INCHES, columns=2) as (left, right):
        plots.lines(left, series, "users")
        plots.log_seconds(left)
        left.set_title(f"Response time, {run.row_ms:.0f} ms for one row")
        plots.lines(right, {device.name: run.rates}, "rows in a batch")
        plots.from_zero(right, "rows/s")
        right.set_title("The engine alone")


if __name__ == "__main__":
    sys.exit(main())
