"""Runs `models plan`, and reads its output."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from app.commands.plan import simulation
from tests.support.commands import run_models


def short_plans(
    monkeypatch: pytest.MonkeyPatch, model_dir: Path, requests: int = 2000
) -> Callable[..., tuple[int, str]]:
    """Return `run_models` of a folder, whose simulations have about so many requests.

    Each step of a simulation has a request of each user, too.
    """
    monkeypatch.setattr(simulation, "_STEP", requests // 10)
    monkeypatch.setattr(simulation, "_OF_A_SERVER", requests // 40)
    monkeypatch.setattr(simulation, "_MOST_REQUESTS", requests)
    return partial(run_models, model_dir)


def table(output: str) -> dict[int, list[str]]:
    """Return the cells of each row of `models plan`, by the number of servers."""
    _, _, rows = output.partition("requests/s  rows a batch")
    lines = [line.lstrip("*").split() for line in rows.splitlines()[1:]]
    end = lines.index([])
    return {int(cells[0].replace(",", "")): cells[1:] for cells in lines[:end]}
