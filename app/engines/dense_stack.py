"""The big dummy model: wide Dense layers that take a wanted time for one row.

Each layer's weights must come from memory for every batch, however small, so that
a batch of 16 costs far less than 16 single rows, as with a large real model.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.engines.keras_tensorflow import KerasTensorFlowEngine, keras
from app.errors import ModelLoadError

_CLASSES = 10
# Enough layers to see the time of one; fewer than this can't be fitted closely.
_FEWEST_LAYERS = 5
_SMALLEST_WIDTH = 64
# How far from the wanted time the first tries and the last may be.
_CLOSE, _TOLERATED = 0.1, 0.2


@dataclass(frozen=True)
class Stack:
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

    def time_ms(self, rows: int, runs: int = 7) -> float:
        """The median time of one batch of so many rows, in ms."""
        return _time_ms(self.engine, rows, runs)


def fit(
    latency_ms: float, width: int, max_bytes: int, say: Callable[[str], None]
) -> Stack:
    """Build the stack whose single row takes `latency_ms`, within 20 %.

    Measures a short stack, computes the number of layers, builds, measures again
    and corrects. Where layers of this width are too slow for a close fit, half the
    width is taken. Weights end at `max_bytes`; deeper stacks go round them again.

    Raises:
        ModelLoadError: five tries did not come within 20 %.
    """
    per_layer_ms = _time_of_a_layer(width)
    while latency_ms / per_layer_ms < _FEWEST_LAYERS and width > _SMALLEST_WIDTH:
        width //= 2
        per_layer_ms = _time_of_a_layer(width)
    say(f"one layer of {width} x {width} takes {per_layer_ms:.2f} ms for one row")
    layers = max(1, round(latency_ms / per_layer_ms))
    for _ in range(5):
        stack = build(width, layers, max(1, max_bytes // (width * width * 4)))
        took_ms = stack.time_ms(1)
        say(f"{layers} layers take {took_ms:.1f} ms, wanted are {latency_ms:.1f} ms")
        if abs(took_ms / latency_ms - 1) <= _CLOSE:
            return stack
        corrected = max(1, round(layers * latency_ms / took_ms))
        if corrected == layers:
            break
        layers = corrected
    if abs(took_ms / latency_ms - 1) <= _TOLERATED:
        return stack
    raise ModelLoadError(
        f"no stack of width {width} came within 20 % of {latency_ms} ms: the last "
        f"took {took_ms:.1f} ms; try again on a quieter machine"
    )


def build(width: int, layers: int, most_distinct: int) -> Stack:
    """An untrained stack with random weights whose values neither grow nor die."""
    distinct = min(layers, most_distinct)
    dense = [
        keras.layers.Dense(
            width, activation="relu", kernel_initializer="he_normal", name=f"dense_{n}"
        )
        for n in range(distinct)
    ]
    image = keras.Input((width,), name="row")
    signal = image
    for n in range(layers):
        signal = dense[n % distinct](signal)
    scores = keras.layers.Dense(_CLASSES, name="scores")(signal)
    model = keras.Model(image, scores, name="big")
    return Stack(model, KerasTensorFlowEngine(model), width, layers, distinct)


def save(stack: Stack, file: Path) -> None:
    """Write a .keras file in one step, so that no reader sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".partial-{file.name}")
    stack.model.save(partial)
    partial.replace(file)


def _time_of_a_layer(width: int) -> float:
    """Milliseconds that one more layer adds for one row."""
    short, long = (build(width, layers, layers) for layers in (4, 12))
    return max((long.time_ms(1) - short.time_ms(1)) / 8, 1e-3)


def _time_ms(engine: KerasTensorFlowEngine, rows: int, runs: int) -> float:
    batch = {spec.name: spec.blank(rows) + 1 for spec in engine.signature.inputs}
    engine.run(batch)
    times_ms = []
    for _ in range(runs):
        began_at = time.perf_counter()
        engine.run(batch)
        times_ms.append((time.perf_counter() - began_at) * 1000)
    return statistics.median(times_ms)
