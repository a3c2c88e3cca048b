"""What kept memory saves on the way to TensorFlow: pictures of 224 x 224, float32.

A model that reads each number once, by the rows of the batch. Prints a Markdown table,
medians. Run `python -m bench.stacking`.
"""

import datetime
import os
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np

from app.engines.base import DEFAULT_SIGNATURE, Array, Signature, TensorSpec
from app.engines.tensorflow_engine import Function, TensorFlowEngine, tf
from app.serving.stack import Stack

_SHAPE = (224, 224, 3)
_ROWS = (1, 8, 64)
_ROUNDS = 31


def main() -> None:
    """Measure both by turns, so that noise hits them alike."""
    signature = Signature(
        (TensorSpec("x", np.dtype("float32"), _SHAPE),),
        (TensorSpec("y", np.dtype("float32"), ()),),
    )
    largest = Function(signature, lambda x: [tf.reduce_max(x, [1, 2, 3])])
    engine = TensorFlowEngine({DEFAULT_SIGNATURE: largest}, weight_bytes=0)
    traced = largest.traced()
    stack = Stack()
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{today}, {os.cpu_count()} cores, Python {platform.python_version()};")
    print(f"pictures of {_SHAPE}, float32; median of {_ROUNDS} rounds\n")
    print("| rows | new arrays, tf.constant (ms) | kept memory (ms) |")
    print("|---|---|---|")
    for rows in _ROWS:
        parts = list(np.random.default_rng(1).random((rows, 1, *_SHAPE), np.float32))

        def copied(parts: list[Array] = parts) -> None:
            traced(tf.constant(np.concatenate(parts)))["y"].numpy()

        def kept(parts: list[Array] = parts) -> None:
            engine.run({"x": stack.put("x", parts)})

        rounds = [(_time_ms(copied), _time_ms(kept)) for _ in range(_ROUNDS)]
        first, second = map(statistics.median, zip(*rounds, strict=True))
        print(f"| {rows} | {first:.2f} | {second:.2f} |", flush=True)


def _time_ms(batch: Callable[[], None]) -> float:
    began_at = time.perf_counter()
    batch()
    return (time.perf_counter() - began_at) * 1000


if __name__ == "__main__":
    main()
