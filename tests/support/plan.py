"""Runs `models plan`, and reads its output."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from app.commands.plan import simulation
from tests.support.commands import run_models


def short_plans(
    monkeypatch: pytest.MonkeyPatch, model_dir: Path
) -> Callable[..., tuple[int, str]]:
    """Return `run_models` of a folder, with short simulations that take seconds."""
    monkeypatch.setattr(simulation, "_STEP", 200)
    monkeypatch.setattr(simulation, "_OF_A_SERVER", 50)
    monkeypatch.setattr(simulation, "_MOST_REQUESTS", 2000)
    return partial(run_models, model_dir)


def table(output: str) -> dict[int, list[str]]:
    """Return the cells of each row of `models plan`, by the number of servers."""
    _, _, rows = output.partition("requests/s  rows a batch")
    lines = [line.lstrip("*").split() for line in rows.splitlines()[1:]]
    end = lines.index([])
    return {int(cells[0].replace(",", "")): cells[1:] for cells in lines[:end]}
