"""A model's engine without a server: rows per second by batch size.

Run in a process of its own: `python -m bench.peers.bare FOLDER SECONDS ROWS ...`.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE, Engine
from testing.server import ROOT

_WARM_UP = 3


def rows_per_second(
    version: Path, sizes: Iterable[int], seconds: float
) -> dict[int, float]:
    """Run the model in a version folder with batches of each size.

    Raises:
        subprocess.CalledProcessError: the engine cannot run it.
    """
    numbers = [str(seconds), *map(str, sizes)]
    command = [sys.executable, "-m", "bench.peers.bare", str(version), *numbers]
    ran = subprocess.run(  # noqa: S603
        command, cwd=ROOT, check=True, capture_output=True, text=True
    )
    found = json.loads(ran.stdout.strip().splitlines()[-1])
    return {int(rows): rate for rows, rate in found.items()}


def main(arguments: Sequence[str]) -> None:
    """Measure, and print a line of JSON."""
    from app.engines import open_engine  # noqa: PLC0415 # TensorFlow, in the child only
    from app.settings import Settings  # noqa: PLC0415

    folder, seconds, *sizes = arguments
    engine = open_engine(Path(folder), Settings())
    print(json.dumps(rates_of(engine, map(int, sizes), float(seconds))))


def rates_of(engine: Engine, sizes: Iterable[int], seconds: float) -> dict[int, float]:
    """Return rows per second by batch size; each size runs for `seconds`."""
    (spec,) = engine.signatures[DEFAULT_SIGNATURE].inputs
    random = np.random.default_rng(1)
    rates = {}
    for size in sizes:
        shape = spec.blank(size).shape
        batch = {spec.name: (random.random(shape) * 255).astype(spec.dtype)}
        for _ in range(_WARM_UP):
            engine.run(batch)
        runs, began_at = 0, time.perf_counter()
        while (took_s := time.perf_counter() - began_at) < seconds:
            engine.run(batch)
            runs += 1
        rates[size] = runs * size / took_s
    return rates


if __name__ == "__main__":
    main(sys.argv[1:])
