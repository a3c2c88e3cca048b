"""Fits the size of a dummy model to a latency, by measuring."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from app.commands.measurement import median_ms
from app.engines.base import DEFAULT_SIGNATURE, Engine
from app.errors import ModelLoadError

_TRIES = 6


class Timed(Protocol):
    """A model whose latency can be measured."""

    def time_ms(self, rows: int) -> float:
        """Return the time of one batch of so many rows, in ms."""
        ...


_Built_co = TypeVar("_Built_co", bound=Timed, covariant=True)


class Builder(Protocol[_Built_co]):
    """Builds models that take longer the more `unit` they have.

    `name` and `unit` are words for messages, such as stack and layers.
    """

    name: str
    unit: str

    def build(self, count: int) -> _Built_co:
        """Build a model of `count` units, at least 1."""
        ...


@dataclass(frozen=True)
class Target:
    """The latency of one row in ms, and the tolerated deviation as a fraction of it."""

    latency_ms: float
    tolerance: float


def fit(
    builder: Builder[_Built_co],
    count: int,
    target: Target,
    say: Callable[[str], None],
) -> _Built_co:
    """Build the model with the target latency for one row; `count` is a first guess.

    Stop at a deviation of half the tolerance, else take the best of six tries.

    Raises:
        ModelLoadError: no try was within the tolerance.
    """
    tries: dict[float, _Built_co] = {}
    for _ in range(_TRIES):
        say(f"building {count} {builder.unit} ...")
        built = builder.build(count)
        took_ms = built.time_ms(1)
        say(
            f"{count} {builder.unit} take {took_ms:.1f} ms, "
            f"target: {target.latency_ms:.1f} ms"
        )
        deviation = abs(took_ms / target.latency_ms - 1)
        if deviation <= target.tolerance / 2:
            return built
        tries[deviation] = built
        count = max(1, round(count * target.latency_ms / took_ms))
    if min(tries) <= target.tolerance:
        return tries[min(tries)]
    raise ModelLoadError(
        f"no {builder.name} came within {target.tolerance:.0%} of "
        f"{target.latency_ms} ms: the closest was off by {min(tries):.0%}; try again "
        "on a quieter machine, or with a larger --tolerance"
    )


def batch_ms(engine: Engine, rows: int) -> float:
    """Return the median time of one batch of so many rows of ones, in ms."""
    specs = engine.signatures[DEFAULT_SIGNATURE].inputs
    batch = {spec.name: spec.blank(rows) + 1 for spec in specs}
    return median_ms(partial(engine.run, batch))
