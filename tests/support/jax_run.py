"""Runs the JAX engine, in a process where Keras's backend is JAX.

`python -m tests.support.jax_run FOLDER` reads FOLDER/batch.npz, runs the models there,
and writes FOLDER/answers.npz and FOLDER/found.json for the test that started it.
"""

import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from app.engines.base import Signature, TensorSpec
from app.engines.jax import keras_file as keras_jax
from app.engines.jax import memory
from app.errors import ModelLoadError, OutOfDeviceMemory
from app.settings import Settings

# More than any machine's memory: 4 TiB for the largest batch.
HUGE_SIDE, HUGE_ROWS = 1 << 14, 1 << 12
WIDE = 1 << 16


def several(folder: Path) -> dict[str, Any]:
    """Run a model of several inputs and outputs, opened as the server opens it."""
    settings = Settings(max_batch_size=3, allowed_batch_sizes=(1, 3))
    engine = keras_jax.open_engine(folder / "several.keras", settings)
    compiled = _compilations.count
    with np.load(folder / "batch.npz") as batch:
        arrays = dict(batch)
    answers = {
        f"{rows} {name}": array
        for rows in (1, 2, 8)
        for name, array in engine.run(
            {name: array[:rows] for name, array in arrays.items()}
        ).items()
    }
    np.savez(folder / "answers.npz", **answers)
    signature = engine.signatures["serving_default"]
    specs = (*signature.inputs, *signature.outputs)
    return {
        "specs": [[spec.name, str(spec.dtype), list(spec.shape)] for spec in specs],
        "padded_sizes": signature.padded_sizes,
        "compiled_by_requests": _compilations.count - compiled,
    }


def free_sizes(keras: Any) -> list[Any]:
    """Return outputs of a model with a free size, for two sizes."""
    row = keras.Input((None, 3), name="row")
    model = keras.Model(row, keras.ops.sum(row, axis=1))
    engine = keras_jax.KerasJaxEngine(model, [1, 2])
    engine.compile_all()
    batches = [np.ones((2, size, 3), np.float32) for size in (1, 5)]
    return [
        array.tolist()
        for batch in batches
        for array in engine.run({"row": batch}).values()
    ]


def wide_numbers(keras: Any) -> list[int]:
    """Return the 64-bit output of a model, and the bytes of its dtype."""
    row = keras.Input((1,), name="row", dtype="int64")
    model = keras.Model(row, row + 1)
    spec = TensorSpec("row", np.dtype(np.int64), (1,))
    signature = Signature((spec,), (spec,))
    engine = keras_jax.KerasJaxEngine(model, [1], signature)
    (output,) = engine.run({"row": np.array([[1 << 40]])}).values()
    return [int(output[0, 0]), output.dtype.itemsize]


def refusal(engine: keras_jax.KerasJaxEngine, *shape: int) -> str:
    """Return the out of memory error for a batch of this shape; empty: it ran."""
    try:
        engine.run({"row": np.ones(shape, np.float32)})
    except OutOfDeviceMemory as error:
        return str(error)
    return ""


def out_of_memory(keras: Any) -> str:
    """Return the engine's error for a batch that exceeds any memory."""
    row = keras.Input((1, 1), name="row")
    huge = keras.ops.tile(row, (1, HUGE_SIDE, HUGE_SIDE))
    engine = keras_jax.KerasJaxEngine(keras.Model(row, huge), [1, HUGE_ROWS])
    return refusal(engine, HUGE_ROWS, 1, 1)


def beyond_the_device(keras: Any) -> list[str]:
    """Return the engine's error for 1, 2 and 4 rows on a device that holds three."""
    row = keras.Input((WIDE,), name="row")
    # The input and the output.
    row_bytes = 2 * WIDE * 4
    model = keras.Model(row, keras.ops.sort(row))
    engine = keras_jax.KerasJaxEngine(model, [1, 2, 4], memory_bytes=3 * row_bytes)
    return [refusal(engine, rows, WIDE) for rows in (1, 2, 4)]


def out_of_memory_at_compilation(keras: Any) -> str:
    """Return the engine's error where JAX finds no memory to compile a new shape."""

    def fail(*_: object) -> None:
        raise keras_jax.jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no room")

    row = keras.Input((None,), name="row")
    engine = keras_jax.KerasJaxEngine(keras.Model(row, row + 1), [1])
    jit = keras_jax.jax.jit
    keras_jax.jax.jit = lambda _: SimpleNamespace(lower=fail)
    try:
        return refusal(engine, 1, 3)
    finally:
        keras_jax.jax.jit = jit


def unknown_memory() -> list[float]:
    """Return the memory of devices and programs of which JAX can't tell it."""
    devices = memory.jax.devices
    found: list[float] = []
    for statistics in (None, {}, {"bytes_limit": -1}):
        device = SimpleNamespace(memory_stats=lambda told=statistics: told)
        memory.jax.devices = lambda only=device: [only]
        found.append(memory.device_bytes())
    memory.jax.devices = devices
    for sizes in (None, {}):
        program = SimpleNamespace(memory_analysis=lambda told=sizes: told)
        found.append(memory.needed_bytes(cast(Any, program)))
    return found


def look_up(keras: Any) -> str:
    """Return the engine's error for a layer that only TensorFlow computes."""
    number = keras.Input((1,), name="number", dtype="int64")
    found = keras.layers.IntegerLookup(vocabulary=[7, 8])(number)
    try:
        keras_jax.KerasJaxEngine(keras.Model(number, found), [1]).compile_all()
    except ModelLoadError as error:
        return str(error)
    return ""


class _Compilations:
    """The number of JAX's compilations, of which JAX notifies listeners."""

    count = 0

    def __call__(self, event: str, duration_s: float, **_: object) -> None:
        self.count += event == "/jax/core/compile/backend_compile_duration"


_compilations = _Compilations()


def main(folder: Path) -> None:
    log = logging.getLogger("app")
    log.setLevel(logging.INFO)
    log.addHandler(logging.FileHandler(folder / "log"))
    keras_jax.jax.monitoring.register_event_duration_secs_listener(_compilations)
    keras = keras_jax.keras
    found: dict[str, Any] = {"several": several(folder)}
    found["compiled"] = _compilations.count
    found["free_sizes"] = free_sizes(keras)
    found["wide_numbers"] = wide_numbers(keras)
    found["out_of_memory"] = out_of_memory(keras)
    found["beyond_the_device"] = beyond_the_device(keras)
    found["out_of_memory_at_compilation"] = out_of_memory_at_compilation(keras)
    found["unknown_memory"] = unknown_memory()
    # Before look_up, whose layer imports TensorFlow.
    found["has_tensorflow"] = "tensorflow" in sys.modules
    found["look_up"] = look_up(keras)
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
