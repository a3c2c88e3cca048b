"""What freezing a model saves: MobileNetV2, a batch as traced and as frozen.

Prints a Markdown table, medians. Run `python -m bench.freezing`.
"""

import datetime
import os
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np

from app.engines.freezing import frozen
from app.engines.keras_tensorflow import keras, serving_function
from app.engines.tensorflow_engine import tf

_SIDE = 96
_ROWS = (1, 8, 64)
_ROUNDS = 15


def main() -> None:
    """Measure both by turns, so that noise hits them alike."""
    model = keras.applications.MobileNetV2((_SIDE, _SIDE, 3), weights=None)
    traced = serving_function(model).traced()
    constant = frozen(traced)
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{today}, {os.cpu_count()} cores, Python {platform.python_version()};")
    print(f"MobileNetV2 {_SIDE} x {_SIDE}; median of {_ROUNDS} rounds\n")
    print("| rows | as traced (ms) | frozen (ms) |")
    print("|---|---|---|")
    for rows in _ROWS:
        random = np.random.default_rng(rows).random((rows, _SIDE, _SIDE, 3), np.float32)
        batch = tf.constant(random)
        rounds = [
            (_time_ms(traced, batch), _time_ms(constant, batch))
            for _ in range(_ROUNDS + 1)
        ]
        # The first round builds what the others use.
        first, second = map(statistics.median, zip(*rounds[1:], strict=True))
        print(f"| {rows} | {first:.1f} | {second:.1f} |", flush=True)


def _time_ms(computes: Callable[..., dict[str, tf.Tensor]], batch: tf.Tensor) -> float:
    began_at = time.perf_counter()
    for output in computes(batch).values():
        output.numpy()
    return (time.perf_counter() - began_at) * 1000


if __name__ == "__main__":
    main()
