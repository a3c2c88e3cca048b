"""Make a recurrent model that takes a given time for one row with JAX.

Each step reads all weights again, so that the graph stays small: dense layers that are
read once would have to be thousands on a large GPU.

`python -m bench.gpu.model FOLDER DEVICE LATENCY_MS UNITS TOLERANCE BARE_S` writes model
and requests, and measures the engine alone with each batch size. DEVICE is gpu or any.
It runs in a process of its own, because JAX keeps the GPU's memory.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from app.commands.new_models import fitting
from app.engines import open_engine
from app.engines.base import DEFAULT_SIGNATURE
from app.engines.batch_sizes import batch_sizes
from app.engines.jax.keras_file import KerasJaxEngine, jax, keras, limit_gpu_memory
from app.errors import ModelLoadError
from app.settings import Settings
from bench.gpu.__main__ import FOUND_FILE, MODEL_NAME
from bench.peers import bare
from bench.peers.loads import random_rows, write_rows

_WIDTH, _CLASSES, _SEED = 64, 10, 8
# First guess, corrected by measurement.
_STEPS = 100
# Each step shrinks the previous state, and its rounding errors with it: a random
# square matrix stretches by at most twice this.
_GAIN = 0.4


@dataclass(frozen=True)
class Recurrent:
    """A model of `steps` steps, and its engine."""

    model: Any
    engine: KerasJaxEngine
    steps: int

    def time_ms(self, rows: int) -> float:
        """Return the median time of a batch of `rows` rows, in ms."""
        return fitting.batch_ms(self.engine, rows)


class Cells:
    """The layers that all tries share: rows of 64 numbers to 10 scores."""

    name, unit = "recurrent model", "steps"

    def __init__(self, units: int) -> None:
        """Draw the weights, mainly `units` x `units` floats."""
        keras.utils.set_random_seed(_SEED)
        normal = keras.initializers.RandomNormal
        self._recurrent = keras.layers.SimpleRNN(
            units,
            kernel_initializer=normal(stddev=_WIDTH**-0.5),
            recurrent_initializer=normal(stddev=_GAIN * units**-0.5),
        )
        self._scores = keras.layers.Dense(_CLASSES)

    def build(self, count: int) -> Recurrent:
        """Return a model that feeds each row to the cells `count` times."""
        row = keras.Input((_WIDTH,), name="row")
        shown = keras.layers.RepeatVector(count)(row)
        model = keras.Model(row, self._scores(self._recurrent(shown)), name=MODEL_NAME)
        return Recurrent(model, KerasJaxEngine(model, [1]), count)


def main(arguments: Sequence[str]) -> int:
    """Write the model, requests and answers; return 1, with a message, on failure."""
    folder, device = Path(arguments[0]), arguments[1]
    latency_ms, units, tolerance, bare_s = map(float, arguments[2:])
    limit_gpu_memory(None)
    if device == "gpu" and jax.default_backend() == "cpu":
        print("JAX sees no GPU: install its CUDA part, docs/gpu.md", file=sys.stderr)
        return 1
    say = partial(print, flush=True)
    wanted = fitting.Target(latency_ms, tolerance)
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
    """Return rows per second by batch size, with the engine that the server opens."""
    settings = Settings(engine="jax")
    engine = open_engine(version, settings)
    rates = []
    for rows in batch_sizes(settings.max_batch_size):
        rate = bare.rate_of(engine, rows, seconds)
        say(f"the engine alone, {rows} rows in a batch: {rate:,.1f} rows/s")
        rates.append((rows, rate))
    return rates


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
