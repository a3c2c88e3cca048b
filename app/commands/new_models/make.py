"""`models make`: models for load tests, with random weights."""

from importlib import import_module
from typing import Any

import click

from app.commands.atomic_write import atomic_write
from app.commands.options import FiniteRange
from app.settings import Settings

_GIB = 1 << 30


def make_commands(settings: Settings) -> click.Group:
    """Return the command group `make`."""
    make = click.Group("make", help="Make a model that is not trained for anything.")

    @make.command("big")
    @click.option("--latency-ms", type=FiniteRange(1, 3_600_000), default=300.0)
    @click.option("--width", type=click.IntRange(64, 65_536), default=4096)
    @click.option("--max-gib", type=FiniteRange(0.01, 1 << 20), default=2.0)
    @click.option("--tolerance", type=FiniteRange(min=0.01), default=0.2)
    def big(latency_ms: float, width: int, max_gib: float, tolerance: float) -> None:
        """Make models/big/1: Dense layers that take LATENCY_MS for one row here.

        MAX_GIB bounds the weights. A slower model goes through them more than once.
        TOLERANCE says how far from LATENCY_MS it may be, as a share of it.
        """
        file = settings.model_dir / "big" / "1" / "model.keras"
        # An unwritable disk must fail before the fit, which takes minutes.
        with atomic_write(file) as partial:
            stack = _fit(latency_ms, width, int(max_gib * _GIB), tolerance)
            click.echo(f"saving {file} ...")
            stack.model.save(partial)
        click.echo("saved; serve it with BASKET_DEFAULT_MODEL=big")

    return make


def _fit(latency_ms: float, width: int, max_bytes: int, tolerance: float) -> Any:
    """Fit a stack of layers, and show its size and its times."""
    click.echo("starting TensorFlow ...")
    # Imported here: only this command needs a framework.
    stacks = import_module("app.commands.new_models.dense_stack")
    stack = stacks.fit(latency_ms, width, max_bytes, tolerance, click.echo)
    click.echo(
        f"{stack.layers} layers of {stack.width}, {stack.distinct} of them "
        f"distinct, {stack.size_bytes() / _GIB:.2f} GiB of weights"
    )
    for rows in (1, 8, 16, 32):
        click.echo(f"batch of {rows:2}: {stack.time_ms(rows):7.1f} ms")
    return stack
