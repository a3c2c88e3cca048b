"""`models plan` of a model that it loads and measures."""

import json

import pytest

from app.commands.measurement import time_batches
from tests.support.plan import short_plans, table

MEASURED = "app.commands.plan.measured"


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Run the command with a folder of models; return exit status and output."""
    return short_plans(monkeypatch, tmp_path)


@pytest.fixture
def model(tmp_path):
    """A model of 2 ms a batch and 1 ms a row, with at most 4 rows a batch."""
    folder = tmp_path / "a" / "1"
    folder.mkdir(parents=True)
    device = {"base_ms": 2, "per_row_ms": 1, "input_shape": [4], "outputs": 1}
    (folder / "simulated.json").write_text(json.dumps(device))
    (tmp_path / "a" / "basket.toml").write_text("max_batch_size = 4")
    return "a"


def test_plan_measures_a_model_as_check_does(command, model, monkeypatch):
    """The table of times is that of `models check`, and the plan is made of it."""
    # One round of rests is enough for a simulated device.
    monkeypatch.setattr("app.commands.measurement.ENOUGH_ROUNDS_S", 1)
    _, checked = command("check", model)
    status, output = command("plan", model, "--rate", "20", "--p95-ms", "100")
    assert status == 0
    assert "loading a version 1 ..." in output
    heading = "    rows  ms a batch    ms a row\n"
    assert heading in checked
    sizes = [
        [line.split()[0] for line in text.partition(heading)[2].splitlines()[:3]]
        for text in (checked, output)
    ]
    assert sizes == [["1", "2", "4"]] * 2
    mean_ms = float(table(output)[1][0])
    assert 3.5 <= mean_ms < 40
    assert "1 server holds a p95 of 100 ms" in output


def test_plan_fills_batches_up_to_what_the_memory_holds(
    command, model, tmp_path, monkeypatch
):
    """A batch that runs out of memory is shown, and no larger one is planned."""
    times_ms = {}

    def timed(*args):
        times_ms.update(time_batches(*args))
        return times_ms

    # Rests make no difference to a simulated device, and take most of a minute.
    monkeypatch.setattr(f"{MEASURED}.time_batches", timed)
    monkeypatch.setattr(f"{MEASURED}.rested_ms", lambda _: {0.0: [times_ms[1]]})
    device = {"base_ms": 20, "input_shape": [4], "outputs": 1, "memory_rows": 2}
    (tmp_path / "a" / "1" / "simulated.json").write_text(json.dumps(device))
    status, output = command("plan", model, "--rate", "300", "--p95-ms", "100")
    assert status == 0
    assert "a batch of 4 rows does not fit: the simulated device holds 2" in output
    rows = table(output)
    assert max(float(cells[6]) for cells in rows.values()) <= 2
    assert float(rows[1][5]) <= 2 / 0.02
