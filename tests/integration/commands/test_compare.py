"""`models compare` without a framework."""

import errno
import json

import numpy as np
import pytest

from app.capture.blocks import encode
from app.capture.captured import Captured, grouped
from app.capture.ring import Ring, folder_of
from tests.support.commands import run_models


@pytest.fixture(name="command")
def _command(tmp_path):
    """Run `models compare` on four versions: equal, slower, of another signature."""
    for version, values in enumerate(
        ({}, {}, {"base_ms": 30}, {"input_shape": [5]}), start=1
    ):
        simulation = {"base_ms": 2, "input_shape": [4], "outputs": 3, **values}
        folder = tmp_path / "models" / "a" / str(version)
        folder.mkdir(parents=True)
        (folder / "simulated.json").write_text(json.dumps(simulation))

    def run(*args, **settings):
        models = tmp_path / "models"
        return run_models(models, "compare", *args, max_batch_size=4, **settings)

    return run


def test_equal_versions_pass(command):
    """The table has times and agreement, on random rows if nothing was captured."""
    status, output = command("a", "1", "2", "--replay", "20")
    assert status == 0
    assert "timing batches of 1 ...\ncomparing on 20 random rows ...\n" in output
    _, _, table = output.partition("a version 2 on 20 random rows\n")
    heading, one, four, agreement, conclusion = table.splitlines()
    assert heading.split() == ["version", "1", "version", "2"]
    assert one.split()[:3] == ["batch", "of", "1"]
    assert four.split()[:3] == ["batch", "of", "4"]
    assert agreement == (
        "  output: the same top class in 100 % of 20 rows, largest difference 0"
    )
    assert conclusion == "version 2 may take over from version 1"


def test_slower_version_fails(command):
    """With the reasons that /readyz would show."""
    status, output = command("a", "1", "3", "--replay", "2")
    assert status == 1
    error = output.splitlines()[-1]
    assert error.startswith("Error: version 3 takes ")
    assert error.endswith("max_slowdown 1.5)")


def test_promotion_of_basket_toml_decides(command, tmp_path):
    """Another signature is allowed, and a slower version."""
    toml = tmp_path / "models" / "a" / "basket.toml"
    status, output = command("a", "1", "4")
    assert status == 1
    text = "signature changed: input input has shape (5,), and version 1 (4,)"
    assert output.splitlines()[-1] == f"Error: version 4 {text}"
    toml.write_text("[promotion]\nrequire_same_signature = false\nmax_slowdown = 100")
    assert command("a", "1", "3", "--replay", "2")[0] == 0
    status, output = command("a", "1", "4")
    assert status == 0
    assert f"  note: {text}\n" in output
    assert "  note: 200 of 200 rows do not fit the new version\n" in output


def test_captured_requests_are_replayed(command, tmp_path):
    """With the largest batch that was captured; damaged files are named."""
    root = tmp_path / "captured"
    inputs = {"input": np.random.default_rng(0).random((30, 4), np.float32)}
    request = Captured("serving_default", inputs, {}, "rows", 30, 1e9, "id", 1, 2, 0.1)
    ring = Ring(folder_of(root, "a"))
    ring.add(encode(grouped([request])), 1_000_000)
    (folder_of(root, "a") / "000000000002.npz").write_text("damaged")
    status, output = command("a", "1", "2", capture_dir=root)
    assert status == 0
    assert "a version 2 on 30 captured rows\n" in output
    assert "timing batches of 2 ...\n" in output
    assert "  note: 000000000002.npz is skipped: " in output


def test_plot_is_written(command, tmp_path):
    """As PNG."""
    pytest.importorskip("matplotlib")
    file = tmp_path / "plot.png"
    status, output = command("a", "1", "2", "--replay", "4", "--plot", file)
    assert status == 0
    assert f"written: {file}\n" in output
    assert file.read_bytes().startswith(b"\x89PNG")


def test_verdict_is_printed_before_the_plot_is_written(command, tmp_path, monkeypatch):
    """A full disk does not lose it."""
    pytest.importorskip("matplotlib")

    def draw(report, file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("app.commands.compare.draw", draw)
    file = tmp_path / "plot.png"
    for version, verdict in (
        (2, "version 2 may take over from version 1"),
        (4, "Error: version 4 signature changed: input input has shape (5,), and"),
    ):
        status, output = command("a", "1", version, "--replay", "2", "--plot", file)
        assert status == 1
        *_, printed, error = output.splitlines()
        assert printed.startswith(verdict)
        assert error == f"Error: {file} can't be written: No space left on device"


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["b", "1", "2"], "no model 'b'; there are: a"),
        (["a", "1", "9"], "model 'a' has no version 9; it has: 1, 2, 3, 4"),
        (
            ["a", "1", "2", "--plot", "missing/a.png"],
            "--plot missing/a.png: there is no folder missing",
        ),
    ],
)
def test_impossible_arguments_are_one_line(command, args, error):
    """Before any version is loaded."""
    assert command(*args) == (1, f"Error: {error}\n")
