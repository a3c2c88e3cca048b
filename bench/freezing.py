"""What constants save, and what folding them saves: MobileNetV2, by the batch's rows.

Prints a Markdown table, medians. Run `python -m bench.freezing`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from app.engines.tensorflow.engine import tf
from app.engines.tensorflow.folding import folded
from app.engines.tensorflow.freezing import convert_variables_to_constants_v2
from app.engines.tensorflow.keras_file import keras, serving_function
from bench.by_turns import Way, print_table
from testing.keras_models import tell_apart

_SIDE = 96
_ROWS = (1, 8, 32, 64)


def main() -> None:
    """Measure all three by turns."""
    model = keras.applications.MobileNetV2((_SIDE, _SIDE, 3), weights=None)
    tell_apart(keras, model, _pictures(8))
    traced = serving_function(model).traced()
    constant = convert_variables_to_constants_v2(traced.get_concrete_function())
    fewer_passes = folded(constant)
    graphs = (
        traced,
        # Called themselves, both write the batch into an error that is swallowed.
        constant.inference_fn.call_flat,
        fewer_passes.inference_fn.call_flat,
    )
    titles = ("as traced", "constants", "folded")
    print_table(f"MobileNetV2 {_SIDE} x {_SIDE}", titles, _lines(graphs))


def _lines(
    graphs: Sequence[Callable[[tf.Tensor], Any]],
) -> Iterator[tuple[int, list[Way]]]:
    for rows in _ROWS:
        batch = tf.constant(_pictures(rows))
        yield rows, [partial(_compute, graph, batch) for graph in graphs]


def _pictures(rows: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(rows).random((rows, _SIDE, _SIDE, 3), np.float32)


def _compute(graph: Callable[[tf.Tensor], Any], batch: tf.Tensor) -> None:
    for output in tf.nest.flatten(graph(batch)):
        output.numpy()


if __name__ == "__main__":
    main()
