"""A recurrent model that takes a wanted time for one row on JAX.

Each step reads all weights again, so a model of any time is a small graph, where one of
Dense layers that are read once would be thousands of layers on a large GPU.

In a process of its own, as JAX keeps the GPU's memory: `python -m bench.gpu.model
FOLDER DEVICE LATENCY_MS UNITS TOLERANCE BARE_S` writes a load, measures the engine
alone with each size of a batch, and writes what it found. DEVICE is gpu, or any.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from app.commands import fitting
from app.engines import open_engine
from app.engines.base import DEFAULT_SIGNATURE
from app.engines.jax.batch_sizes import batch_sizes
from app.engines.jax.keras_file import KerasJaxEngine, jax, keras, limit_gpu_memory
from app.errors import ModelLoadError
from app.settings import Settings
from bench.gpu.plan import FOUND_FILE, MODEL_NAME
from bench.peers import bare
from bench.peers.models import random_rows, write_rows

_WIDTH, _CLASSES, _SEED = 64, 10, 8
# A first guess, which is corrected by what it takes.
_STEPS = 100
# A random square matrix stretches by at most twice this, so that each step forgets a
# part of what was before it, and with that of all rounding.
_GAIN = 0.4


@dataclass(frozen=True)
class Recurrent:
    """A model that goes through `steps` steps for any batch."""

    model: Any
    engine: KerasJaxEngine
    steps: int

    def time_ms(self, rows: int) -> float:
        """The median time of one batch of so many rows, in ms."""
        return fitting.batch_ms(self.engine, rows)


class Cells:
    """The layers, made once and used by every try: rows (64) to scores (10)."""

    name, unit = "recurrent model", "steps"

    def __init__(self, units: int) -> None:
        """Draw the weights: `units` x `units` floats, and few more."""
        keras.utils.set_random_seed(_SEED)
        normal = keras.initializers.RandomNormal
        self._recurrent = keras.layers.SimpleRNN(
            units,
            kernel_initializer=normal(stddev=_WIDTH**-0.5),
            recurrent_initializer=normal(stddev=_GAIN * units**-0.5),
        )
        self._scores = keras.layers.Dense(_CLASSES)

    def build(self, count: int) -> Recurrent:
        """A model that shows each row to the cells `count` times."""
        row = keras.Input((_WIDTH,), name="row")
        shown = keras.layers.RepeatVector(count)(row)
        model = keras.Model(row, self._scores(self._recurrent(shown)), name=MODEL_NAME)
        return Recurrent(model, KerasJaxEngine(model, [1]), count)


def main(arguments: Sequence[str]) -> int:
    """Make the model, its requests and its answers; 1: it can't, and says why."""
    folder, device = Path(arguments[0]), arguments[1]
    latency_ms, units, tolerance, bare_s = map(float, arguments[2:])
    limit_gpu_memory(None)
    if device == "gpu" and jax.default_backend() == "cpu":
        print("JAX sees no GPU: install its CUDA part, docs/gpu.md", file=sys.stderr)
        return 1
    say = partial(print, flush=True)
    wanted = fitting.Wanted(latency_ms, tolerance)
    try:
        fitted = fitting.fit(Cells(int(units)), _STEPS, wanted, say)
    except ModelLoadError as error:
        print(error, file=sys.stderr)
        return 1
    rows = random_rows(_WIDTH)
    write_rows(folder, rows)
    (spec,) = fitted.engine.signatures[DEFAULT_SIGNATURE].outputs
    np.save(folder / "expected.npy", fitted.engine.run({"row": rows})[spec.name])
    version = folder / "models" / MODEL_NAME / "1"
    version.mkdir(parents=True)
    fitted.model.save(version / "model.keras")
    told = {
        "steps": fitted.steps,
        "row_ms": fitted.time_ms(1),
        "rates": _rates(version, bare_s, say),
        "weights_mib": fitted.engine.weight_bytes / (1 << 20),
    }
    (folder / FOUND_FILE).write_text(json.dumps(told))
    return 0


def _rates(
    version: Path, seconds: float, say: Callable[[str], None]
) -> list[tuple[int, float]]:
    """Rows in a second by the rows of a batch, of what the server will open."""
    settings = Settings(engine="jax")
    engine = open_engine(version, settings)
    rates = []
    for rows in batch_sizes(settings.max_batch_size):
        ((_, rate),) = bare.rates_of(engine, [rows], seconds).items()
        say(f"the engine alone, {rows} rows in a batch: {rate:,.1f} rows/s")
        rates.append((rows, rate))
    return rates


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
