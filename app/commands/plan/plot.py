"""Draws p95 by the load of one server."""

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

from app.commands.plan.search import OneServer

# Of the files that matplotlib writes without other programs.
_ENDINGS = (".png", ".svg", ".pdf", ".webp", ".jpg", ".jpeg")
_INCHES, _DOTS_PER_INCH = (5.8, 4.0), 150
# Two of Okabe and Ito's colors, which color-blind readers can tell apart.
_BLUE, _ORANGE = "#0072B2", "#D55E00"


def check_possible(file: Path | None) -> None:
    """Check that a picture can be drawn, before what it shows is measured.

    Raises:
        click.ClickException: matplotlib is not installed, or the file has another
            ending than a picture's, or can't be in its folder.
    """
    if file is None:
        return
    if find_spec("matplotlib") is None:
        raise click.ClickException(
            "--plot needs a package that is not here: pip install matplotlib"
        )
    if file.suffix.lower() not in _ENDINGS:
        known = f"{', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}"
        raise click.ClickException(
            f"--plot {file}: expected a name that ends in {known}"
        )
    if not os.path.isdir(file.parent):
        raise click.ClickException(f"--plot {file}: there is no folder {file.parent}")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise click.ClickException(f"--plot {file}: {file.parent} can't be written to")


def draw(one: OneServer, limit_s: float, file: Path) -> None:
    """Write a picture of the curve of one server; the file's ending is its format."""
    # Imported here: the server does without it.
    figure = import_module("matplotlib.figure").Figure(_INCHES, layout="constrained")
    axes = figure.subplots()
    loads = [load.amount for load in one.curve]
    axes.plot(loads, [1000 * seen.p95_s for seen in one.curve.values()], "o-", c=_BLUE)
    axes.axhline(1000 * limit_s, color=_ORANGE, linestyle="--")
    by_users = one.most is not None and one.most.users
    axes.set_xlabel("users" if by_users else "requests/s")
    axes.set_ylabel("ms")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 2 * 1000 * limit_s)
    axes.grid(color="#DDDDDD")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(
        f"p95 of one server; dashed: the limit of {1000 * limit_s:g} ms", loc="left"
    )
    figure.savefig(file, dpi=_DOTS_PER_INCH)
