"""`models make`, with a stand-in for TensorFlow."""

from types import SimpleNamespace

import pytest

from app.commands import make
from tests.support.commands import run_models


class DenseStacks:
    """Stands for app.commands.dense_stack; it fails half way of saving if told to."""

    error: BaseException | None = None

    def __init__(self):
        self.asked = []

    def fit(self, latency_ms, width, max_bytes, tolerance, say):
        self.asked.append((latency_ms, width, max_bytes, tolerance))
        return SimpleNamespace(
            **{"layers": 7, "distinct": 5, "width": width},
            size_bytes=lambda: 1 << 30,
            time_ms=lambda rows: 10.0 + rows,
            model=SimpleNamespace(save=self._save),
        )

    def _save(self, file):
        assert file.suffix == ".keras"
        file.write_text("half")
        if self.error is not None:
            raise self.error
        file.write_text("whole")


@pytest.fixture
def stacks(monkeypatch):
    stacks = DenseStacks()
    monkeypatch.setattr(make, "import_module", lambda name: stacks)
    return stacks


@pytest.fixture
def run(tmp_path, stacks):
    """Runs `models make big` and gives its exit status and output."""

    def run(*args):
        return run_models(tmp_path / "models", "make", "big", *args)

    return run


@pytest.fixture
def file(tmp_path):
    """The file that is made."""
    return tmp_path / "models" / "big" / "1" / "model.keras"


def test_a_big_model_is_saved_whole(run, stacks, file):
    """The model that was fitted is saved and shown, with nothing beside it."""
    status, output = run("--latency-ms", "50", "--width", "512", "--max-gib", "0.5")
    assert status == 0
    assert stacks.asked == [(50.0, 512, 1 << 29, 0.2)]
    assert "7 layers of 512, 5 of them distinct, 1.00 GiB of weights" in output
    assert "batch of 16:    26.0 ms" in output
    assert output.endswith("saved; serve it with BASKET_DEFAULT_MODEL=big\n")
    assert file.read_text() == "whole"
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(28, "No space left"), "Error: {file} can't be written: No space left"),
        (KeyboardInterrupt(), "Aborted!"),
    ],
)
def test_half_a_model_is_taken_away(run, stacks, tmp_path, file, error, line):
    """A full disk or Ctrl-C ends it with one line, and nothing half written."""
    stacks.error = error
    status, output = run()
    assert status == 1
    assert output.splitlines()[-1] == line.format(file=file)
    assert list(tmp_path.iterdir()) == []


def test_the_model_before_stays_until_there_is_another(run, stacks, file):
    """A model made earlier is replaced by the next, but not by half of it."""
    file.parent.mkdir(parents=True)
    file.write_text("before")
    stacks.error = OSError(28, "No space left on device")
    assert run()[0] == 1
    assert file.read_text() == "before"
    assert list(file.parent.iterdir()) == [file]
    stacks.error = None
    assert run()[0] == 0
    assert file.read_text() == "whole"


def test_a_disk_that_takes_nothing_is_told_before_the_fitting(run, stacks, file):
    """Nobody waits for a fit whose model can't be saved."""
    file.parents[2].touch()
    status, output = run()
    assert (status, output) == (1, f"Error: {file} can't be written: Not a directory\n")
    assert stacks.asked == []
