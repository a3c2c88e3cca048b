"""`models fetch`, with a double for Keras and its downloads."""

import json
from pathlib import Path

import pytest

from app.commands.new_models import fetch
from app.commands.new_models.architectures import ARCHITECTURES
from app.errors import ModelLoadError
from app.settings import Settings
from app.settings.model_config import read_model_config
from tests.support.commands import run_models

CLASSES = {"0": ["n01440764", "tench"], "1": ["n01443537", "goldfish"]}


class Model:
    """A double for a Keras model."""

    def __init__(self, side, save_error):
        self.input_shape = (None, side, side, 3)
        self.save_error = save_error

    def save(self, file: Path) -> None:
        if self.save_error is not None:
            raise self.save_error
        file.write_bytes(b"a model")


class Applications:
    """A double for new_models.applications, without Keras and a network."""

    class DownloadError(ModelLoadError):
        pass

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.fails: dict[str, Exception] = {}

    def build(self, function, scale, side, weights):
        self.calls.append((function, scale, side, weights))
        if "build" in self.fails:
            raise self.fails["build"]
        return Model(side or 224, self.fails.get("save"))

    def imagenet_classes(self):
        if "classes" in self.fails:
            raise self.fails["classes"]
        return CLASSES


@pytest.fixture
def applications(monkeypatch):
    made = Applications()
    monkeypatch.setattr(fetch, "import_module", lambda name: made)
    return made


@pytest.fixture
def run(tmp_path, applications):
    """Run `models fetch`; return its exit status and output."""

    def run(*args):
        result = run_models(tmp_path, "fetch", *args)
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
        return result

    return run


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("mobilenet_v2", "-1..1"),
        ("densenet121", "imagenet"),
        ("resnet50", "caffe"),
        ("efficientnet_b0", "none"),
    ],
)
def test_fetched_model_has_weights_image_config_and_classes(
    run, applications, tmp_path, name, scale
):
    """The model scales as its architecture does; [image] and classes are written."""
    status, output = run(name)
    assert status == 0, output
    assert f"BASKET_DEFAULT_MODEL={name}" in output
    assert applications.calls == [
        (ARCHITECTURES[name].function, scale, None, "imagenet")
    ]
    assert (tmp_path / name / "1" / "model.keras").read_bytes() == b"a model"
    config = read_model_config(tmp_path / name, Settings(model_dir=tmp_path))
    assert config.settings.allowed_batch_sizes == (1, 2, 4, *range(8, 65, 8))
    assert config.settings.max_batch_size == 64
    image = config.image
    assert (image.size, image.mode, image.scale) == ((224, 224), "RGB", "none")
    assert [(each.id, each.name) for each in image.classes] == [
        ("n01440764", "tench"),
        ("n01443537", "goldfish"),
    ]
    # In ImageNet's own form.
    assert json.loads((tmp_path / name / "classes.json").read_text()) == CLASSES


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (1, [1]),
        (2, [1, 2]),
        (10, [1, 2, 4, 6, 8, 10]),
        (64, [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64]),
        (100, [1, 2, 4, 8, 13, 26, 39, 52, 65, 78, 91, 100]),
    ],
)
def test_allowed_batch_sizes_are_at_most_an_eighth_apart(most, sizes):
    """The sizes end at the maximum, and are at most an eighth of it apart."""
    assert fetch.few_batch_sizes(most) == sizes


def test_size_and_random_weights_reach_keras(run, applications, tmp_path):
    """--size and --weights none reach Keras; the size is in basket.toml."""
    status, output = run("mobilenet_v2", "--weights", "none", "--size", "96")
    assert status == 0, output
    assert applications.calls == [("MobileNetV2", "-1..1", 96, None)]
    image = read_model_config(tmp_path / "mobilenet_v2", Settings()).image
    assert image.size == (96, 96)


def test_weights_file_reaches_keras_as_a_path(run, applications, tmp_path):
    """--weights FILE reaches Keras as a path."""
    file = tmp_path / "own.weights.h5"
    file.write_bytes(b"weights")
    assert run("mobilenet_v2", "--weights", str(file))[0] == 0
    assert applications.calls == [("MobileNetV2", "-1..1", None, file)]


@pytest.mark.parametrize("what", ["build", "classes"])
def test_failed_download_suggests_offline_options(run, applications, tmp_path, what):
    """The error has the reason and the options that work offline."""
    applications.fails[what] = Applications.DownloadError("no such host")
    status, output = run("mobilenet_v2")
    assert status == 1
    assert "can't be downloaded: no such host" in output
    assert "--weights none" in output
    assert "--weights FILE" in output
    assert not (tmp_path / "mobilenet_v2").exists()


def test_random_weights_do_without_class_names(run, applications, tmp_path):
    """With --weights none, a model without ImageNet's names is made, with a note."""
    applications.fails["classes"] = Applications.DownloadError("no such host")
    status, output = run("mobilenet_v2", "--weights", "none")
    assert status == 0
    assert "Answers are predictions by index" in output
    folder = tmp_path / "mobilenet_v2"
    assert sorted(path.name for path in folder.iterdir()) == ["1", "basket.toml"]
    assert read_model_config(folder, Settings()).image.classes == ()


@pytest.mark.parametrize(
    ("args", "status", "expected"),
    [
        (["nonet"], 2, "'nonet' is not one of"),
        (["mobilenet_v2", "--size", "0"], 2, "is not in the range"),
        (["mobilenet_v2", "--weights", "some.h5"], 1, "expected imagenet, none, or a"),
    ],
)
def test_invalid_arguments_are_refused_before_keras_starts(
    run, applications, args, status, expected
):
    """A wrong name, size or weights file is an error, and Keras is not called."""
    assert run(*args)[0] == status
    assert expected in run(*args)[1]
    assert not applications.calls


def test_help_lists_the_architectures(run):
    """`models fetch --help` names each architecture."""
    status, output = run("--help")
    assert status == 0
    listed = output.partition("NAME is one of: ")[2].replace("\n", " ")
    assert {name.strip() for name in listed.split(",")} == set(ARCHITECTURES)


def test_existing_model_is_not_overwritten(run, applications, tmp_path):
    """A model is never overwritten."""
    (tmp_path / "mobilenet_v2").mkdir()
    status, output = run("mobilenet_v2")
    assert status == 1
    assert "exists already" in output
    assert not applications.calls


@pytest.mark.parametrize(
    ("step", "error", "expected"),
    [
        ("build", ModelLoadError("Input size must be at least 32x32"), "at least 32"),
        ("save", OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_failed_fetch_leaves_nothing(
    run, applications, tmp_path, step, error, expected
):
    """A refusal of Keras or a full disk is one line, and no folder stays."""
    applications.fails[step] = error
    status, output = run("mobilenet_v2", "--size", "16")
    assert status == 1
    assert expected in output
    assert "Traceback" not in output
    assert not list(tmp_path.iterdir())
