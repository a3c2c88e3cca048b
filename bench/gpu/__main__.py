"""Run the article's experiment on this machine's GPU: `python -m bench.gpu`."""

import argparse
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from bench.gpu import device as devices
from bench.gpu import page
from bench.gpu.device import Device
from bench.gpu.plan import FULL, QUICK
from bench.gpu.run import Found, NoModel, Run
from bench.loadtest import machine
from bench.loadtest.progress import Progress, about
from bench.peers.run import PROBLEMS, one_line
from bench.report_folder import today
from testing.server import ROOT

# 128 plus the number of SIGINT, as shells have it.
_STOPPED = 130
_NO_GPU = "no NVIDIA GPU here, so nothing is measured; a trial run: --any-device"
_PACKAGES = (
    *("JAX", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin"),
    *("Keras", "NumPy", "Gunicorn"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the page, and give the exit status: 0 if all went well."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser().parse_args(given)
    trial = options.quick or options.any_device
    if trial and options.out is None:
        _parser().error("a trial run goes into a folder of its own: --out FOLDER")
    device = devices.gpu() or (devices.processor() if options.any_device else None)
    problem = _NO_GPU if device is None else _lacks()
    if device is None or problem:
        print(problem, file=sys.stderr)
        return 1
    found = _measure(device, options)
    if isinstance(found, int):
        return found
    command = shlex.join(["python", "-m", "bench.gpu", *given])
    told = page.About(
        command, today(), _machine(device), device.memory_mib, trial=trial
    )
    _write(found, told, options.out or ROOT / "docs")
    return 0 if found.sound else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu",
        description="Naive and batching beside each other on this machine's GPU, with "
        "JAX: writes docs/gpu.md.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="a trial run: all of it, but small")
    add(
        "--any-device",
        action="store_true",
        help="a trial run: on the processor where there is no GPU",
    )
    add("--out", type=Path, metavar="FOLDER", help="instead of docs")
    return parser


def _lacks() -> str:
    """What is not installed, or nothing."""
    missing = [name for name in ("jax", "keras", "matplotlib") if not find_spec(name)]
    return f"not installed: {', '.join(missing)}; see docs/gpu.md" if missing else ""


def _measure(device: Device, options: argparse.Namespace) -> Found | int:
    """What was found, or the exit status."""
    plan = QUICK if options.quick else FULL
    kind = "any" if options.any_device else "gpu"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cells = sum(len(users) for _, users in plan.steps())
    print(f"{about(plan.left_s(0))}, and what making the model takes", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            return Run(plan, device, Path(folder), Progress(cells)).measure(kind)
        except NoModel:
            return 1
        except PROBLEMS as error:
            print(f"nothing is written: {one_line(error)}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("stopped: nothing is written", file=sys.stderr)
            return _STOPPED


def _machine(device: Device) -> dict[str, str]:
    found = machine.describe(_PACKAGES)
    card = f"{device.name}, {device.memory_mib:,} MiB"
    return found | {"GPU": card, "driver": device.driver}


def _write(found: Found, told: page.About, out: Path) -> None:
    from bench.gpu import plot  # noqa: PLC0415 # matplotlib is slow

    out.mkdir(parents=True, exist_ok=True)
    text = page.markdown(found, told)
    (out / "gpu.md").write_text(text)
    title = f"GPU: {told.machine['GPU']}; a model of {found.row_ms:.0f} ms for one row"
    plot.draw(found, title, out / page.PLOT_FILE)
    print(f"\n{text}\nthe page is {out / 'gpu.md'}")


if __name__ == "__main__":
    sys.exit(main())
