"""What constants save, and what folding them saves: MobileNetV2, by the batch's rows.

Prints a Markdown table, medians. Run `python -m bench.freezing`.
"""

import datetime
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from app.engines.folding import folded
from app.engines.freezing import convert_variables_to_constants_v2
from app.engines.keras_tensorflow import keras, serving_function
from app.engines.tensorflow_engine import tf
from tests.support.keras_models import tell_apart

_SIDE = 96
_ROWS = (1, 8, 32, 64)
_ROUNDS = 25


def main() -> None:
    """Measure all three by turns, so that noise hits them alike."""
    model = keras.applications.MobileNetV2((_SIDE, _SIDE, 3), weights=None)
    tell_apart(keras, model, _pictures(8))
    traced = serving_function(model).traced()
    constant = convert_variables_to_constants_v2(traced.get_concrete_function())
    fewer_passes = folded(constant)
    computes = (
        traced,
        # Called themselves, both write the batch into an error that is swallowed.
        constant.inference_fn.call_flat,
        fewer_passes.inference_fn.call_flat,
    )
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{today}, {os.cpu_count()} cores, Python {platform.python_version()};")
    print(f"MobileNetV2 {_SIDE} x {_SIDE}; median of {_ROUNDS} rounds\n")
    print("| rows | as traced (ms) | constants (ms) | folded (ms) |")
    print("|---|---|---|---|")
    for rows in _ROWS:
        batch = tf.constant(_pictures(rows))
        rounds = [
            [_time_ms(each, batch) for each in computes] for _ in range(_ROUNDS + 1)
        ]
        # The first round builds what the others use.
        medians = map(statistics.median, zip(*rounds[1:], strict=True))
        cells = " | ".join(f"{each:.1f}" for each in medians)
        print(f"| {rows} | {cells} |", flush=True)


def _pictures(rows: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(rows).random((rows, _SIDE, _SIDE, 3), np.float32)


def _time_ms(computes: Callable[[tf.Tensor], Any], batch: tf.Tensor) -> float:
    began_at = time.perf_counter()
    for output in tf.nest.flatten(computes(batch)):
        output.numpy()
    return (time.perf_counter() - began_at) * 1000


if __name__ == "__main__":
    main()
