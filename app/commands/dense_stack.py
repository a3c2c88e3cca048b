"""The big dummy model: wide Dense layers that take a wanted time for one row.

Each layer's weights must come from memory for every batch, however small, so that
a batch of 16 costs far less than 16 single rows, as with a large real model.
"""

from collections.abc import Callable
from dataclasses import dataclass

from app.commands import fitting
from app.engines.tensorflow.keras_file import KerasTensorFlowEngine, keras
from app.errors import ModelLoadError

_CLASSES = 10
_GIB = 1 << 30
# Enough layers to see the time of one; fewer than this can't be fitted closely.
_FEWEST_LAYERS = 5
_SMALLEST_WIDTH = 64
# Keras calls itself for each layer, which Python ends at about a thousand.
_MOST_LAYERS = 500
# Depths whose difference gives the time of a layer; noise may make it next to nothing,
# so it counts as at least this part of the deeper one's.
_PROBES = (4, 12)
_LEAST_PART = 1 / 48


@dataclass(frozen=True)
class DenseStack:
    """A fitted model.

    `layers` are applied one after the other; only `distinct` of them have weights
    of their own, the others use those again.
    """

    model: keras.Model
    engine: KerasTensorFlowEngine
    width: int
    layers: int
    distinct: int

    def size_bytes(self) -> int:
        """Bytes of all weights, float32."""
        return int(self.model.count_params()) * 4

    def time_ms(self, rows: int) -> float:
        """The median time of one batch of so many rows, in ms."""
        return fitting.batch_ms(self.engine, rows)


def fit(
    latency_ms: float,
    width: int,
    max_bytes: int,
    tolerance: float,
    say: Callable[[str], None],
) -> DenseStack:
    """Build the stack whose single row takes `latency_ms`.

    A short stack is measured for a first guess of how many layers that takes, then
    it is corrected as `fitting.fit` does. Where layers of this width are too slow for
    a close fit, half the width is taken. Weights end at `max_bytes`; deeper stacks go
    round them again.

    Raises:
        ModelLoadError: none of several tries was within `tolerance`, that takes too
            many layers, or one layer has more weights than are allowed.
    """
    if _layer_bytes(width) > max_bytes:
        raise ModelLoadError(
            f"one layer of {width} x {width} has {_layer_bytes(width) / _GIB:.2g} GiB "
            f"of weights; take a smaller --width or a larger --max-gib"
        )
    pool, per_layer_ms = _time_of_a_layer(width, max_bytes)
    while latency_ms / per_layer_ms < _FEWEST_LAYERS and width > _SMALLEST_WIDTH:
        width //= 2
        pool, per_layer_ms = _time_of_a_layer(width, max_bytes)
    say(f"one layer of {width} x {width} takes {per_layer_ms:.2f} ms for one row")
    layers = max(1, round(latency_ms / per_layer_ms))
    return fitting.fit(pool, layers, fitting.Wanted(latency_ms, tolerance), say)


class LayerPool:
    """Dense layers with random weights, made once and used by every try."""

    unit = "layers"

    def __init__(self, width: int, max_bytes: int) -> None:
        """Store the width, and the bytes at which the weights end."""
        self.name = f"stack of width {width}"
        self._width = width
        self._most = max_bytes // _layer_bytes(width)
        self._dense: list[keras.layers.Dense] = []
        self._scores = keras.layers.Dense(_CLASSES, name="scores")

    def build(self, count: int) -> DenseStack:
        """A stack whose values neither grow nor die on the way through it.

        Raises:
            ModelLoadError: it would be too deep for Keras.
        """
        if count > _MOST_LAYERS:
            raise ModelLoadError(
                f"{count} layers of {self._width} x {self._width} would be needed, "
                f"and {_MOST_LAYERS} are the most; take a larger --width"
            )
        while len(self._dense) < min(count, self._most):
            self._dense.append(
                keras.layers.Dense(
                    self._width,
                    activation="relu",
                    kernel_initializer="he_uniform",
                    name=f"dense_{len(self._dense)}",
                )
            )
        distinct = min(count, self._most)
        row = signal = keras.Input((self._width,), name="row")
        for n in range(count):
            signal = self._dense[n % distinct](signal)
        model = keras.Model(row, self._scores(signal), name="big")
        engine = KerasTensorFlowEngine(model)
        return DenseStack(model, engine, self._width, count, distinct)


def _layer_bytes(width: int) -> int:
    return width * width * 4


def _time_of_a_layer(width: int, max_bytes: int) -> tuple[LayerPool, float]:
    """Milliseconds that one more layer adds for one row, and the layers used."""
    pool = LayerPool(width, max_bytes)
    short, long = (pool.build(layers).time_ms(1) for layers in _PROBES)
    return pool, max((long - short) / (_PROBES[1] - _PROBES[0]), long * _LEAST_PART)
