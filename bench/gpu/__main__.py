"""Run the article's experiment on this machine's GPU: `python -m bench.gpu`.

A load test of a model that takes a given time for one row, and with it the batch sizes
of the engine alone, and the memory that servers take.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pynvml

from app import gpus
from app.settings import Settings
from bench.gpu import FOUND_FILE, MODEL_NAME
from bench.loadtest import report
from bench.loadtest.run import LoadTest, Plan
from bench.loadtest.setups import AUTO, NAIVE, USERS
from bench.peers.servers import Setting, basket
from bench.prepared import Prepared, prepared_in
from bench.report import header, new_folder, table, versions
from testing.server import ROOT

_NO_GPU = "no NVIDIA GPU here, so nothing is measured; a trial run: --quick"
_PACKAGES = ("JAX", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "NumPy")
_TRIAL = "**A trial run, which shows that the command works: no figures.**"
_LARGEST = Settings().max_batch_size
_JAX = {"engine": "jax"}
_SETUPS = [replace(each, settings=each.settings | _JAX) for each in (NAIVE, AUTO)]
# Milliseconds for one row, and units: 1 GiB of weights, far more than a GPU's cache.
_FULL, _QUICK = (300, 16_384), (2, 128)
# A single user would think for almost all of the time.
QUICK_USERS = (2, 5)


def main(given: Sequence[str]) -> int:
    """Measure, write the report, and return the exit status: 0 if all was right."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu",
        description="Naive and batching beside each other on this machine's GPU.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="a small trial run, also without a GPU")
    add("--out", type=Path, help="a new folder; default: reports/<date>")
    options = parser.parse_args(given)
    gpu = pinned_gpu()
    cards = gpu.read()
    missing = [name for name in ("jax", "keras", "matplotlib") if not find_spec(name)]
    if missing or not (cards or options.quick):
        lacks = f"not installed: {', '.join(missing)}; see docs/gpu.md"
        print(lacks if missing else _NO_GPU, file=sys.stderr)
        return 1
    on = {"measured on": "the processor"}
    for card in cards:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        on = {"GPU": f"{card.name}, {card.memory_mib:,} MiB", "driver": driver}
    line = header(["bench.gpu", *given], on | versions(_PACKAGES))
    out = new_folder(options.out)
    with tempfile.TemporaryDirectory() as folder:
        return _measure(options.quick, line, gpu, out, Path(folder))


def pinned_gpu() -> gpus.MemoryReader:
    """Pin this process and its children to the first visible GPU; return its reader.

    It reads the memory that all processes together use: in a container the driver may
    know a process by another id. Without a GPU it reads nothing.
    """
    numbers = tuple(gpu.number for gpu in gpus.visible()[:1])
    for number in numbers:
        gpus.pin(number)
    return gpus.MemoryReader(numbers)


def _measure(
    quick: bool, line: str, gpu: gpus.MemoryReader, out: Path, folder: Path
) -> int:
    print("making the model ...", flush=True)
    # In a process of its own, as JAX keeps the device's memory; it prints its problem.
    command = ["-m", "bench.gpu.model", str(folder), "gpu" if gpu.read() else "any"]
    command += map(str, _QUICK if quick else _FULL)
    if subprocess.run([sys.executable, *command], cwd=ROOT, check=False).returncode:  # noqa: S603
        return 1
    found = json.loads((folder / FOUND_FILE).read_text())
    users = QUICK_USERS if quick else USERS
    prepared = prepared_in(folder)
    short = {"seconds": 2.8, "warm_up_s": 0.2} if quick else {}
    served = prepared.models / MODEL_NAME
    plan = Plan(_SETUPS, users, served, prepared=prepared, **short)
    text = f"{_TRIAL}\n\n{line}" if quick else line
    campaign = LoadTest(text, len(_SETUPS) * len(users), model=MODEL_NAME)
    campaign.measure_all(plan, out / "raw")
    memory = [] if campaign.stopped else [weigh(n, gpu, prepared) for n in ("0.4", "")]
    report.write(campaign, out, more=sections(found, memory))
    print(f"the report is in {out}")
    return campaign.status()


def weigh(fraction: str, gpu: gpus.MemoryReader, prepared: Prepared) -> tuple[str, ...]:
    """Serve with a GPU_MEMORY_FRACTION, or none; return a row on its memory."""

    def used_mib() -> int:
        return sum(each.used_mib for each in gpu.read())

    before_mib = used_mib()
    more = {"gpu_memory_fraction": fraction} if fraction else {}
    serve = basket(*AUTO.arguments, **_JAX, **more)
    with serve(prepared, Setting()) as target:
        ready_mib = used_mib() - before_mib
        row = json.loads(prepared.bodies[0].read_bytes())["instances"]
        reply = target.server.predict(row * _LARGEST)
        assert reply.status == HTTPStatus.OK, f"{_LARGEST} rows: {reply.body.decode()}"
        full_mib = used_mib() - before_mib
    card_mib = sum(each.memory_mib for each in gpu.read()) or 1
    share = f"{full_mib / card_mib:.0%}"
    return fraction or "none", f"{ready_mib:,}", f"{full_mib:,}", share


def sections(found: Any, memory: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the report's sections on the engine alone and on memory."""
    row_ms = found["batches"][0][1]
    sizes = (
        (n, f"{ms:.1f}", f"{1000 * n / ms:,.1f}", f"{n * row_ms / ms:.1f}")
        for n, ms in found["batches"]
    )
    full = f"after {_LARGEST} rows (MiB)"
    return [
        f"The recurrent layer has {found['steps']:,} steps and "
        f"{found['weights_mib']:,.3g} MiB of weights; one row takes "
        f"{row_ms:.1f} ms.",
        *("", "## Batch sizes, the engine alone", ""),
        *table(("rows", "a batch (ms)", "rows/s", "x one row"), sizes),
        *("", "## Memory in use, more than before the start", ""),
        *table(("fraction", "first answer (MiB)", full, "of the card"), memory),
        "",
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
