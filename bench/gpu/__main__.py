"""Run the article's experiment on this machine's GPU: `python -m bench.gpu`."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pynvml

from app import gpus
from bench.figures import Seen
from bench.gpu.run import FULL, LARGEST, QUICK, Experiment, pinned_gpu
from bench.report import header, new_folder, table, versions

_NO_GPU = "no NVIDIA GPU here, so nothing is measured; a trial run: --quick"
_PACKAGES = ("JAX", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "NumPy")
_SIZE_INCHES = (9.6, 4.2)
_TRIAL = "**A trial run, which shows that the command works: no figures.**"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the report, and return the exit status: 0 if all was right."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu",
        description="Naive and batching beside each other on this machine's GPU.",
    )
    words = "a trial run of all of it, but small; on the processor without a GPU"
    parser.add_argument("--quick", action="store_true", help=words)
    words = "a new folder; default: reports/<date>"
    parser.add_argument("--out", type=Path, help=words)
    options = parser.parse_args(given)
    gpu = pinned_gpu()
    missing = [name for name in ("jax", "keras", "matplotlib") if not find_spec(name)]
    if missing or (gpu is None and not options.quick):
        lacks = f"not installed: {', '.join(missing)}; see docs/gpu.md"
        print(lacks if missing else _NO_GPU, file=sys.stderr)
        return 1
    out = new_folder(options.out)
    plan = QUICK if options.quick else FULL
    total = sum(len(users) for _, users in plan.steps())
    line = header(["bench.gpu", *given], _driver(gpu) | versions(_PACKAGES))
    run = Experiment(line, total, gpu=gpu)
    with tempfile.TemporaryDirectory() as folder, run.until_interrupted():
        if not run.measure_all(plan, Path(folder)):
            return 1
    text = markdown(run, trial=options.quick)
    (out / "gpu.md").write_text(text)
    if run.cells:
        _draw(run, out / "gpu.png")
    print(f"\n{text}\nthe report is in {out}")
    return run.status() or int(len(run.memory) < len(plan.steps()))


def _driver(gpu: gpus.MemoryReader | None) -> dict[str, str]:
    """Return the measured card and its driver."""
    if gpu is None:
        return {"measured on": "the processor"}
    (card,) = gpu.read()
    driver = str(pynvml.nvmlSystemGetDriverVersion())
    return {"GPU": f"{card.name}, {card.memory_mib:,} MiB", "driver": driver}


def markdown(run: Experiment, *, trial: bool) -> str:
    """Return the report."""
    found = run.found
    users = (
        (*(cell.server, cell.clients.count, *cell.seen.row()), cell.problem or "")
        for cell in run.cells
    )
    sizes = (
        (n, f"{n / rate * 1000:.1f}", f"{rate:,.1f}", f"{rate / found.rates[0][1]:.1f}")
        for n, rate in found.rates
    )
    card_mib = sum(each.memory_mib for each in run.gpu.read()) if run.gpu else 0
    memory = (
        (name, f"{ready:,}", f"{full:,}", f"{full / max(card_mib, 1):.0%}")
        for name, ready, full in run.memory
    )
    full = f"after {LARGEST} rows (MiB)"
    lines = [
        *([_TRIAL, ""] if trial else []),
        run.header,
        f"The recurrent layer has {found.steps:,} steps and {found.weights_mib:,.3g} "
        f"MiB of weights; one row takes {found.row_ms:.1f} ms.",
        *("", "## Users", ""),
        *table(("server", "users", *Seen.HEADING, "problem"), users),
        *("", "## Batch sizes, the engine alone", ""),
        *table(("rows", "a batch (ms)", "rows/s", "x one row"), sizes),
        *("", "## Memory in use, more than before the start", ""),
        *table(("server", "first answer (MiB)", full, "of the card"), memory),
    ]
    return "\n".join([*lines, ""])


def _draw(run: Experiment, file: Path) -> None:
    """Draw response time by users, and rows/s by rows in a batch."""
    from bench import plots  # noqa: PLC0415 # slow to import

    with plots.saved(file, _SIZE_INCHES, columns=2) as (left, right):
        plots.by_users(left, run.cells, lambda seen: seen.p95_s)
        plots.log_seconds(left)
        left.set_title("95 % of answers come within")
        plots.lines(right, {"rows/s": run.found.rates}, "rows in a batch")
        plots.from_zero(right, "rows/s")
        right.set_title("The engine alone")


if __name__ == "__main__":
    sys.exit(main())
