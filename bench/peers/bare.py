"""A model's engine without a server, in a process of its own.

`python -m bench.peers.bare FOLDER ROWS SECONDS` prints the rows per second of the
version in FOLDER with batches of ROWS rows.
"""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE, Engine
from testing.server import ROOT

_WARM_UP = 3


def rows_per_second(version: Path, rows: int, seconds: float) -> float:
    """Run the model in a version folder for `seconds`.

    Raises:
        subprocess.CalledProcessError: the engine cannot run it.
    """
    command = [sys.executable, "-m", "bench.peers.bare", str(version), str(rows)]
    ran = subprocess.run(  # noqa: S603
        [*command, str(seconds)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return float(ran.stdout.split()[-1])


def main(folder: str, rows: str, seconds: str) -> None:
    """Measure, and print the rate."""
    from app.engines import open_engine  # noqa: PLC0415 # TensorFlow, in the child only
    from app.settings import Settings  # noqa: PLC0415

    print(rate_of(open_engine(Path(folder), Settings()), int(rows), float(seconds)))


def rate_of(engine: Engine, rows: int, seconds: float) -> float:
    """Return rows per second with batches of `rows` rows."""
    (spec,) = engine.signatures[DEFAULT_SIGNATURE].inputs
    shape = spec.blank(rows).shape
    batch = {
        spec.name: (np.random.default_rng(1).random(shape) * 255).astype(spec.dtype)
    }
    for _ in range(_WARM_UP):
        engine.run(batch)
    runs, began_at = 0, time.perf_counter()
    while (took_s := time.perf_counter() - began_at) < seconds:
        engine.run(batch)
        runs += 1
    return runs * rows / took_s


if __name__ == "__main__":
    main(*sys.argv[1:])
