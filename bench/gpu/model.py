"""Make a recurrent model that takes about a given time for one row with JAX.

Each step reads all weights again, so that the graph stays small: dense layers that are
read once would have to be thousands on a large GPU.

`python -m bench.gpu.model FOLDER DEVICE LATENCY_MS UNITS` writes model and requests,
and measures the engine alone with each batch size. DEVICE is gpu or any. It runs in a
process of its own, because JAX keeps the GPU's memory.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.commands.measurement import batch_ms, time_batches
from app.engines import open_engine
from app.engines.base import DEFAULT_SIGNATURE
from app.engines.jax.keras_file import KerasJaxEngine, jax, keras, limit_gpu_memory
from app.settings import Settings
from bench.gpu import FOUND_FILE, MODEL_NAME
from bench.peers.loads import random_rows
from bench.prepared import json_bodies, write_requests

_WIDTH, _CLASSES, _SEED = 64, 10, 8
# Measured first; the model has as many as its latency needs.
_STEPS = 100
# Each step shrinks the previous state, and its rounding errors with it: a random
# square matrix stretches by at most twice this.
_GAIN = 0.4


def build(steps: int, units: int) -> Any:
    """Return a model that feeds each row to `units` cells in so many steps."""
    keras.utils.set_random_seed(_SEED)
    normal = keras.initializers.RandomNormal
    recurrent = keras.layers.SimpleRNN(
        units,
        kernel_initializer=normal(stddev=_WIDTH**-0.5),
        recurrent_initializer=normal(stddev=_GAIN * units**-0.5),
    )
    row = keras.Input((_WIDTH,), name="row")
    state = recurrent(keras.layers.RepeatVector(steps)(row))
    return keras.Model(row, keras.layers.Dense(_CLASSES)(state), name=MODEL_NAME)


def main(arguments: Sequence[str]) -> int:
    """Write the model, requests and answers; return 1, with a message, on failure."""
    folder, device = Path(arguments[0]), arguments[1]
    latency_ms, units = map(int, arguments[2:])
    limit_gpu_memory(None)
    if device == "gpu" and jax.default_backend() == "cpu":
        print("JAX sees no GPU: install its CUDA part, docs/gpu.md", file=sys.stderr)
        return 1
    first_ms = batch_ms(KerasJaxEngine(build(_STEPS, units), [1]), 1)
    steps = max(round(_STEPS * latency_ms / first_ms), 1)
    print(f"{_STEPS} steps take {first_ms:.1f} ms, so it has {steps}", flush=True)
    model = build(steps, units)
    engine = KerasJaxEngine(model, [1])
    rows = random_rows(_WIDTH)
    (expected,) = engine.run({"row": rows}).values()
    write_requests(folder, json_bodies(rows), expected)
    version = folder / "models" / MODEL_NAME / "1"
    version.mkdir(parents=True)
    model.save(version / "model.keras")
    # The engine that the server opens.
    settings = Settings(engine="jax")
    served = open_engine(version, settings)
    (spec,) = served.signatures[DEFAULT_SIGNATURE].inputs
    times_ms = time_batches(
        served, DEFAULT_SIGNATURE, lambda size: {spec.name: spec.blank(size)}, settings
    )
    found = {
        "steps": steps,
        "batches": list(times_ms.items()),
        "weights_mib": engine.weight_bytes / (1 << 20),
    }
    (folder / FOUND_FILE).write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
