"""Run the article's experiment on this machine's GPU: `python -m bench.gpu`.

A load test of a model that takes a given time for one row, and with it the batch sizes
of the engine alone, and the memory that servers take.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
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


# Milliseconds for one row, units, and seconds of each batch size of the engine alone;
# 1 GiB of weights is far more than any GPU's cache.
_FULL, _QUICK = (300, 16_384, 3.0), (2, 128, 0.1)
# A single user would think for almost all of the time.
QUICK_USERS = (2, 5)


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
    line = header(["bench.gpu", *given], _driver(gpu) | versions(_PACKAGES))
    out = new_folder(options.out)
    with tempfile.TemporaryDirectory() as folder:
        return _measure(options.quick, line, gpu, out, Path(folder))


def pinned_gpu() -> gpus.MemoryReader | None:
    """Pin this process and its children to the first visible GPU; return its reader.

    It reads the memory that all processes together use: in a container the driver may
    know a process by another id.
    """
    there = gpus.visible()
    if not there:
        return None
    gpus.pin(there[0].number)
    return gpus.MemoryReader((there[0].number,))


def _driver(gpu: gpus.MemoryReader | None) -> dict[str, str]:
    """Return the measured card and its driver."""
    if gpu is None:
        return {"measured on": "the processor"}
    (card,) = gpu.read()
    driver = str(pynvml.nvmlSystemGetDriverVersion())
    return {"GPU": f"{card.name}, {card.memory_mib:,} MiB", "driver": driver}


def _measure(
    quick: bool, line: str, gpu: gpus.MemoryReader | None, out: Path, folder: Path
) -> int:
    print("making the model ...", flush=True)
    # In a process of its own, as JAX keeps the device's memory; it prints its problem.
    command = ["-m", "bench.gpu.model", str(folder), "gpu" if gpu else "any"]
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


def weigh(
    fraction: str, gpu: gpus.MemoryReader | None, prepared: Prepared
) -> tuple[str, ...]:
    """Serve with a GPU_MEMORY_FRACTION, or none; return a row on its memory."""

    def used_mib() -> int:
        return sum(each.used_mib for each in gpu.read()) if gpu else 0

    before_mib = used_mib()
    more = {"gpu_memory_fraction": fraction} if fraction else {}
    serve = basket(*AUTO.arguments, **_JAX, **more)
    with serve(prepared, Setting()) as target:
        ready_mib = used_mib() - before_mib
        row = json.loads(prepared.bodies[0].read_bytes())["instances"]
        body = json.dumps({"instances": row * _LARGEST}).encode()
        with contextlib.closing(target.connect()) as client:
            answer = target.post(body, client)
        assert answer is not None, f"a batch of {_LARGEST} rows was not answered"
        full_mib = used_mib() - before_mib
    card_mib = sum(each.memory_mib for each in gpu.read()) if gpu else 1
    share = f"{full_mib / card_mib:.0%}"
    return fraction or "none", f"{ready_mib:,}", f"{full_mib:,}", share


def sections(found: Any, memory: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the report's sections on the engine alone and on memory."""
    rates = found["rates"]
    sizes = (
        (n, f"{n / rate * 1000:.1f}", f"{rate:,.1f}", f"{rate / rates[0][1]:.1f}")
        for n, rate in rates
    )
    full = f"after {_LARGEST} rows (MiB)"
    return [
        f"The recurrent layer has {found['steps']:,} steps and "
        f"{found['weights_mib']:,.3g} MiB of weights; one row takes "
        f"{found['row_ms']:.1f} ms.",
        *("", "## Batch sizes, the engine alone", ""),
        *table(("rows", "a batch (ms)", "rows/s", "x one row"), sizes),
        *("", "## Memory in use, more than before the start", ""),
        *table(("fraction", "first answer (MiB)", full, "of the card"), memory),
        "",
    ]


if __name__ == "__main__":
    sys.exit(main())
