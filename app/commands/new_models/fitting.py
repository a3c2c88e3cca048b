"""Fits the number of a stack's layers to a latency, by measuring."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from app.commands.measurement import median_ms
from app.engines.base import DEFAULT_SIGNATURE, Engine
from app.errors import ModelLoadError

if TYPE_CHECKING:
    from app.commands.new_models.dense_stack import DenseStack, LayerPool

_TRIES = 6


def fit(
    pool: "LayerPool",
    layers: int,
    latency_ms: float,
    tolerance: float,
    say: Callable[[str], None],
) -> "DenseStack":
    """Build the stack that takes so long for one row; `layers` is a first guess.

    `tolerance` is a fraction of the latency. Stop at a deviation of half of it, else
    take the best of six tries.

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


def batch_ms(engine: Engine, rows: int) -> float:
    """Return the median time of one batch of so many rows of ones, in ms."""
    specs = engine.signatures[DEFAULT_SIGNATURE].inputs
    batch = {spec.name: spec.blank(rows) + 1 for spec in specs}
    return median_ms(partial(engine.run, batch))
