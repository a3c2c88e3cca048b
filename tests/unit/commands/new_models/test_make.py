"""`models make`, with a double for TensorFlow."""

import os

import pytest

from app.commands.new_models import make
from tests.support.commands import run_models


class DenseStacks:
    """A double for new_models.dense_stack, the fitted stack, and its model."""

    layers, distinct = 7, 5

    def __init__(self):
        self.calls = []
        # Raised while saving.
        self.error = None

    def fit(self, latency_ms, width, max_bytes, tolerance, say):
        assert os.environ["KERAS_BACKEND"] == "tensorflow"
        self.calls.append((latency_ms, width, max_bytes, tolerance))
        self.width = width
        return self

    @property
    def model(self):
        return self

    def size_bytes(self):
        return 1 << 30

    def time_ms(self, rows):
        return 10.0 + rows

    def save(self, file):
        assert file.suffix == ".keras"
        file.write_text("partial")
        if self.error is not None:
            raise self.error
        file.write_text("complete")


@pytest.fixture
def stacks(monkeypatch):
    stacks = DenseStacks()
    monkeypatch.setattr(make, "import_module", lambda name: stacks)
    return stacks


@pytest.fixture
def run(tmp_path, stacks):
    """Run `models make big`; return its exit status and output."""

    def run(*args):
        return run_models(tmp_path / "models", "make", "big", *args)

    return run


@pytest.fixture
def file(tmp_path):
    """The path of the model."""
    return tmp_path / "models" / "big" / "1" / "model.keras"


def test_make_big_saves_the_fitted_model(run, stacks, file, monkeypatch):
    """The model is fitted on TensorFlow, saved and shown, with no file beside it."""
    monkeypatch.setenv("KERAS_BACKEND", "numpy")
    status, output = run("--latency-ms", "50", "--width", "512", "--max-gib", "0.5")
    assert status == 0
    assert stacks.calls == [(50.0, 512, 1 << 29, 0.2)]
    assert "7 layers of 512, 5 of them distinct, 1.00 GiB of weights" in output
    assert "batch of 16:    26.0 ms" in output
    assert output.endswith("saved; serve it with BASKET_DEFAULT_MODEL=big\n")
    assert file.read_text() == "complete"
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(28, "No space left"), "Error: {file} can't be written: No space left"),
        (KeyboardInterrupt(), "Aborted!"),
    ],
)
def test_failed_save_leaves_nothing(run, stacks, tmp_path, file, error, line):
    """A full disk or Ctrl-C is one line, and no partial file stays."""
    stacks.error = error
    status, output = run()
    assert status == 1
    assert output.splitlines()[-1] == line.format(file=file)
    assert list(tmp_path.iterdir()) == []


def test_existing_model_is_replaced_only_by_a_complete_one(run, stacks, file):
    """A model made earlier is replaced by the next, but not by a partial one."""
    file.parent.mkdir(parents=True)
    file.write_text("before")
    stacks.error = OSError(28, "No space left on device")
    assert run()[0] == 1
    assert file.read_text() == "before"
    assert list(file.parent.iterdir()) == [file]
    stacks.error = None
    assert run()[0] == 0
    assert file.read_text() == "complete"


def test_unwritable_disk_fails_before_the_fit(run, stacks, file):
    """An unwritable model folder is an error before the fit starts."""
    file.parents[2].touch()
    status, output = run()
    assert (status, output) == (1, f"Error: {file} can't be written: Not a directory\n")
    assert stacks.calls == []
