"""The model `big`: wide Dense layers that take a given time for one row.

Each batch, however small, reads all weights from memory, so that a batch of 16 costs
far less than 16 single rows, as with a large real model.
"""

from collections.abc import Callable
from dataclasses import dataclass

from app.commands.measurement import batch_ms
from app.engines.tensorflow.keras_file import KerasTensorFlowEngine, keras
from app.errors import ModelLoadError

_CLASSES = 10
_GIB = 1 << 30
# With fewer layers, one layer more or less is too coarse a step.
_MIN_LAYERS = 5
_MIN_WIDTH = 64
# Keras recurses for each layer, and Python's recursion limit is 1000.
_MAX_LAYERS = 500
# Depths whose difference in time gives that of a layer. Because of noise, a layer
# counts as at least this part of the deeper one.
_PROBES = (4, 12)
_MIN_PART = 1 / 48
# The first guess follows from two short measurements; more layers have to follow from
# a stack that was measured.
_MOST_GUESSED = 100
_TRIES = 6


@dataclass(frozen=True)
class DenseStack:
    """A fitted model; `distinct` of its `layers` layers have weights of their own."""

    model: keras.Model
    engine: KerasTensorFlowEngine
    width: int
    layers: int
    distinct: int

    def size_bytes(self) -> int:
        """Return the bytes of all weights, float32."""
        return int(self.model.count_params()) * 4

    def time_ms(self, rows: int) -> float:
        """Return the median time of one batch of so many rows, in ms."""
        return batch_ms(self.engine, rows)


def fit(
    latency_ms: float,
    width: int,
    max_bytes: int,
    tolerance: float,
    say: Callable[[str], None],
) -> DenseStack:
    """Build the stack that takes `latency_ms` for a single row.

    Two short stacks give a first guess of the number of layers, which more
    tries correct. If layers of this width are too slow for a close fit, the width is
    halved. Stacks above `max_bytes` of weights reuse layers.

    Raises:
        ModelLoadError: no try was within `tolerance`, more than 500 layers are
            needed, or one layer exceeds `max_bytes`.
    """
    if _layer_bytes(width) > max_bytes:
        raise ModelLoadError(
            f"one layer of {width} x {width} has {_layer_bytes(width) / _GIB:.2g} GiB "
            f"of weights; take a smaller --width or a larger --max-gib"
        )
    pool, per_layer_ms = _measure_layer(width, max_bytes)
    while latency_ms / per_layer_ms < _MIN_LAYERS and width > _MIN_WIDTH:
        width //= 2
        pool, per_layer_ms = _measure_layer(width, max_bytes)
    say(f"one layer of {width} x {width} takes {per_layer_ms:.2f} ms for one row")
    layers = min(max(1, round(latency_ms / per_layer_ms)), _MOST_GUESSED)
    return _closest(pool, layers, latency_ms, tolerance, say)


class LayerPool:
    """Dense layers with random weights, created once and shared by all tries."""

    def __init__(self, width: int, max_bytes: int) -> None:
        """Store the width, and the limit of the weights in bytes."""
        self.name = f"stack of width {width}"
        self._width = width
        self._max_distinct = max_bytes // _layer_bytes(width)
        self._dense: list[keras.layers.Dense] = []
        self._scores = keras.layers.Dense(_CLASSES, name="scores")

    def build(self, count: int) -> DenseStack:
        """Build a stack; He initialization keeps its values from growing or vanishing.

        Raises:
            ModelLoadError: it would be too deep for Keras.
        """
        if count > _MAX_LAYERS:
            raise ModelLoadError(
                f"{count} layers of {self._width} x {self._width} would be needed, "
                f"and {_MAX_LAYERS} are the most; take a larger --width"
            )
        while len(self._dense) < min(count, self._max_distinct):
            self._dense.append(
                keras.layers.Dense(
                    self._width,
                    activation="relu",
                    kernel_initializer="he_uniform",
                    name=f"dense_{len(self._dense)}",
                )
            )
        distinct = min(count, self._max_distinct)
        row = signal = keras.Input((self._width,), name="row")
        for n in range(count):
            signal = self._dense[n % distinct](signal)
        model = keras.Model(row, self._scores(signal), name="big")
        engine = KerasTensorFlowEngine(model)
        return DenseStack(model, engine, self._width, count, distinct)


def _closest(
    pool: LayerPool,
    layers: int,
    latency_ms: float,
    tolerance: float,
    say: Callable[[str], None],
) -> DenseStack:
    """Return the first stack within half the tolerance, else the best of six.

    `layers` is a first guess, `tolerance` a fraction of the latency.

    Raises:
        ModelLoadError: no try was within the tolerance.
    """
    tries: dict[float, DenseStack] = {}
    for _ in range(_TRIES):
        say(f"building {layers} layers ...")
        stack = pool.build(layers)
        took_ms = stack.time_ms(1)
        say(f"{layers} layers take {took_ms:.1f} ms, target: {latency_ms:.1f} ms")
        deviation = abs(took_ms / latency_ms - 1)
        if deviation <= tolerance / 2:
            return stack
        tries[deviation] = stack
        layers = max(1, round(layers * latency_ms / took_ms))
    if min(tries) <= tolerance:
        return tries[min(tries)]
    raise ModelLoadError(
        f"no {pool.name} came within {tolerance:.0%} of {latency_ms} ms: the closest "
        f"was off by {min(tries):.0%}; try again on a quieter machine, or with a "
        "larger --tolerance"
    )


def _layer_bytes(width: int) -> int:
    return width * width * 4


def _measure_layer(width: int, max_bytes: int) -> tuple[LayerPool, float]:
    """Return a pool of layers, and the ms that one more layer adds to a single row."""
    pool = LayerPool(width, max_bytes)
    short, long = (pool.build(layers).time_ms(1) for layers in _PROBES)
    return pool, max((long - short) / (_PROBES[1] - _PROBES[0]), long * _MIN_PART)
