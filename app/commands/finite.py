"""Numbers of the command line."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """Numbers within bounds; click's own range lets nan through, and often inf."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number.

        Raises:
            click.BadParameter: it is none, or out of bounds.
        """
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number
