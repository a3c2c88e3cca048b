"""What kept memory saves on the way to TensorFlow: pictures of 224 x 224, float32.

A model that reads each number once, by the rows of the batch. Prints a Markdown table,
medians. Run `python -m bench.stacking`.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from app.batching.batch_memory import BatchMemory
from app.engines.base import DEFAULT_SIGNATURE, Array, Signature, TensorSpec
from app.engines.tensorflow.engine import Function, TensorFlowEngine, tf
from bench.by_turns import Way, print_table

_SHAPE = (224, 224, 3)
_ROWS = (1, 8, 64)


def main() -> None:
    """Measure both by turns."""
    signature = Signature(
        (TensorSpec("x", np.dtype("float32"), _SHAPE),),
        (TensorSpec("y", np.dtype("float32"), ()),),
    )
    largest = Function(signature, lambda x: [tf.reduce_max(x, [1, 2, 3])])
    engine = TensorFlowEngine({DEFAULT_SIGNATURE: largest}, weight_bytes=0)
    traced = largest.traced()
    stack = BatchMemory()

    def copied(parts: list[Array]) -> None:
        traced(tf.constant(np.concatenate(parts)))["y"].numpy()

    def kept(parts: list[Array]) -> None:
        engine.run({"x": stack.put("x", parts)})

    titles = ("new arrays, tf.constant", "kept memory")
    print_table(f"pictures of {_SHAPE}, float32", titles, _lines(copied, kept))


def _lines(*ways: Callable[[list[Array]], None]) -> Iterator[tuple[int, list[Way]]]:
    for rows in _ROWS:
        parts = list(np.random.default_rng(1).random((rows, 1, *_SHAPE), np.float32))
        yield rows, [partial(way, parts) for way in ways]


if __name__ == "__main__":
    main()
