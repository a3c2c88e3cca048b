"""Whether the vision service's memory stays flat, and what makes it grow.

First the engine alone: what each new size of a batch adds. Then the service under wrk
at 128 connections, as `models fetch` sets it up and with batches of all sizes, its
resident memory read each second. Run `python -m bench.vision.memory`.
"""

import argparse
import datetime
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import wrk
from bench.vision.set_ups import Server, basket, fetched, photographs
from bench.vision.wrk import drive, family_mib, load_seconds
from testing.memory import resident_mib

_MODEL = "mobilenet_v2"
_CONNECTIONS = 128
_SIDE = 96
_MOST_ROWS = 64
# Flat: the last value is at most 1 % above the least since 5 s. Some memory may go
# then: what was freed while the model was loaded.
_SETTLED_S, _FLAT = 5, 1.01


def main() -> int:
    """Measure, print, and fail where the service as it is set up does not stay flat."""
    options = _options()
    wrk.require()
    print(f"{datetime.datetime.now(datetime.UTC).date()}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        pictures = photographs(Path(folder) / "pictures")
        models = fetched(Path(folder) / "few", _MODEL, _SIDE)
        _measure_engine(models / _MODEL)
        few = _under_load("few sizes, as fetched", models, pictures, options.seconds)
        everything = shutil.copytree(models, Path(folder) / "all")
        _allow_all(everything / _MODEL / "basket.toml")
        _under_load("all sizes", everything, pictures, options.seconds)
    return 0 if few else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.vision.memory")
    parser.add_argument("--seconds", type=load_seconds, default=20, help="default: 20")
    return parser.parse_args()


def _allow_all(config: Path) -> None:
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(each for each in lines if "allowed_batch" not in each))


def _measure_engine(model: Path) -> None:
    """Print this process's memory after batches of few sizes, and then of all."""
    from app.engines import open_engine  # noqa: PLC0415
    from app.settings import Settings  # noqa: PLC0415
    from app.settings.model_config import read_model_config  # noqa: PLC0415

    settings = read_model_config(model, Settings()).settings
    engine = open_engine(model / "1", settings)
    (image,) = engine.signatures["serving_default"].inputs

    def run(sizes: Sequence[int], what: str) -> None:
        for rows in sizes:
            engine.run({image.name: image.blank(rows)})
        print(f"  {what:26} {resident_mib(os.getpid()):6.0f} MiB", flush=True)

    print("the engine alone, after batches of")
    run((1, _MOST_ROWS), f"1 and {_MOST_ROWS} rows")
    run(settings.allowed_batch_sizes, f"all {len(settings.allowed_batch_sizes)} sizes")
    run(range(1, _MOST_ROWS + 1), f"1 to {_MOST_ROWS} rows")
    run([*range(1, _MOST_ROWS + 1)] * 2, "the same twice more")
    engine.close()


def _under_load(
    what: str, models: Path, pictures: Sequence[Path], seconds: int
) -> bool:
    """Print memory each second under load; whether it is flat."""
    with basket(models) as server, _sampled(server) as samples:
        load = drive(server.url, pictures, _CONNECTIONS, seconds, server.pid)
    since = samples[_SETTLED_S - 1 :]
    least, last = min(since), samples[-1]
    is_flat = last <= least * _FLAT
    print(
        f"{what}: {load.seen.rate():.0f} requests/s, {load.seen.errors} errors, "
        f"{load.seen.not_2xx} not 2xx; {since[0]:.0f} MiB after {_SETTLED_S} s, "
        f"{least:.0f} at least, {last:.0f} after {seconds} s: {last / least - 1:+.1%}, "
        f"{'flat' if is_flat else 'not flat'}"
    )
    print("  " + " ".join(f"{each:.0f}" for each in samples), flush=True)
    return is_flat


@contextmanager
def _sampled(server: Server) -> Iterator[list[float]]:
    """MiB of the server's processes, one more each second until the end."""
    samples: list[float] = []
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(1):
            samples.append(family_mib(server.pid))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
