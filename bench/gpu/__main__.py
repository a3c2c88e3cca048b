"""Run the article's experiment on this machine's GPU: `python -m bench.gpu`."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from bench import machine
from bench.gpu import device as devices
from bench.gpu import page
from bench.gpu.device import Device
from bench.gpu.run import FULL, QUICK, Found, NoModel, measure
from bench.report import PROBLEMS, STOPPED, header, interrupt_on_signals, one_line
from testing.server import ROOT

_NO_GPU = "no NVIDIA GPU here, so nothing is measured; a trial run: --any-device"
_PACKAGES = (
    *("JAX", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin"),
    *("Keras", "NumPy", "Gunicorn"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the page, and return the exit status: 0 if all was right."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu",
        description="Naive and batching beside each other on this machine's GPU, with "
        "JAX: writes docs/gpu.md.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="a trial run: all of it, but small")
    help_ = "a trial run: on the processor where there is no GPU"
    add("--any-device", action="store_true", help=help_)
    add("--out", type=Path, metavar="FOLDER", help="instead of docs")
    options = parser.parse_args(given)
    trial = options.quick or options.any_device
    if trial and options.out is None:
        parser.error("a trial run goes into a folder of its own: --out FOLDER")
    device = devices.gpu() or (devices.processor() if options.any_device else None)
    missing = [name for name in ("jax", "keras", "matplotlib") if not find_spec(name)]
    if device is None or missing:
        lacks = f"not installed: {', '.join(missing)}; see docs/gpu.md"
        print(_NO_GPU if device is None else lacks, file=sys.stderr)
        return 1
    found = _measure(device, options)
    if isinstance(found, int):
        return found
    card = f"{device.name}, {device.memory_mib:,} MiB"
    where = machine.describe(_PACKAGES) | {"GPU": card, "driver": device.driver}
    line = header(["bench.gpu", *given], where)
    text = page.markdown(found, line, device.memory_mib, trial=trial)
    folder = options.out or ROOT / "docs"
    page.write(found, device.name, text, folder)
    print(f"\n{text}\nthe page is {folder / 'gpu.md'}")
    return 0 if all(cell.sound for cell in found.cells) else 1


def _measure(device: Device, options: argparse.Namespace) -> Found | int:
    """Return the figures, or the exit status."""
    plan = QUICK if options.quick else FULL
    kind = "any" if options.any_device else "gpu"
    interrupt_on_signals()
    with tempfile.TemporaryDirectory() as folder:
        try:
            return measure(plan, device, kind, Path(folder))
        except NoModel:
            return 1
        except PROBLEMS as error:
            print(f"nothing is written: {one_line(error)}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("stopped: nothing is written", file=sys.stderr)
            return STOPPED


if __name__ == "__main__":
    sys.exit(main())
