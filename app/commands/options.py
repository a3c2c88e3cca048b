"""Command-line options that several commands share."""

import math
from typing import Any

import click

version_option = click.option(
    "--version", type=click.IntRange(min=0), help="Default: the newest."
)


class FiniteRange(click.FloatRange):
    """Finite numbers within bounds; click's own range accepts nan, and often inf."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number.

        Raises:
            click.BadParameter: it is not a number, not finite, or out of bounds.
        """
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number
