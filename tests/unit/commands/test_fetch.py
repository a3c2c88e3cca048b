"""`models fetch`, with a stand-in for Keras and its downloads."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.commands import fetch
from app.commands.architectures import ARCHITECTURES
from app.errors import ModelLoadError
from app.settings import Settings
from app.settings.model_config import read_model_config
from tests.support.commands import run_models

CLASSES = {"0": ["n01440764", "tench"], "1": ["n01443537", "goldfish"]}


class DownloadError(ModelLoadError):
    pass


class Applications:
    """Stands for app.commands.applications, without Keras and without a network."""

    DownloadError = DownloadError

    def __init__(self) -> None:
        self.asked: list[tuple] = []
        self.fails: dict[str, Exception] = {}

    def build(self, function, scale, side, weights):
        self.asked.append((function, scale, side, weights))
        if "build" in self.fails:
            raise self.fails["build"]
        shape = (None, side or 224, side or 224, 3)
        return SimpleNamespace(input_shape=shape, save=self._save)

    def imagenet_classes(self):
        if "classes" in self.fails:
            raise self.fails["classes"]
        return CLASSES

    def _save(self, file: Path) -> None:
        if "save" in self.fails:
            raise self.fails["save"]
        file.write_bytes(b"a model")


@pytest.fixture
def applications(monkeypatch):
    made = Applications()
    monkeypatch.setattr(fetch, "import_module", lambda name: made)
    return made


@pytest.fixture
def run(tmp_path, applications):
    """Runs `models fetch` and gives its exit status and output."""

    def run(*args):
        told = run_models(tmp_path, "fetch", *args)
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
        return told

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
def test_a_fetched_model_is_ready_to_be_served(
    run, applications, tmp_path, name, scale
):
    """The model scales as its architecture wants; beside it stand [image] and names."""
    status, said = run(name)
    assert status == 0, said
    assert f"BASKET_DEFAULT_MODEL={name}" in said
    assert applications.asked == [
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
def test_sizes_of_batches_are_few_and_close(most, sizes):
    """The sizes end at the most, and are at most an eighth of it apart."""
    assert fetch.few_batch_sizes(most) == sizes


def test_a_size_and_random_weights(run, applications, tmp_path):
    """--size and --weights none reach Keras, and the size stands in basket.toml."""
    status, said = run("mobilenet_v2", "--weights", "none", "--size", "96")
    assert status == 0, said
    assert applications.asked == [("MobileNetV2", "-1..1", 96, None)]
    image = read_model_config(tmp_path / "mobilenet_v2", Settings()).image
    assert image.size == (96, 96)


def test_a_file_of_weights(run, applications, tmp_path):
    """--weights FILE reaches Keras as a path."""
    file = tmp_path / "own.weights.h5"
    file.write_bytes(b"weights")
    assert run("mobilenet_v2", "--weights", str(file))[0] == 0
    assert applications.asked == [("MobileNetV2", "-1..1", None, file)]


@pytest.mark.parametrize("what", ["build", "classes"])
def test_without_a_network_the_way_out_is_named(run, applications, tmp_path, what):
    """What can't be downloaded is told with its reason and with what works offline."""
    applications.fails[what] = DownloadError("no such host")
    status, said = run("mobilenet_v2")
    assert status == 1
    assert "can't be downloaded: no such host" in said
    assert "--weights none" in said
    assert "--weights FILE" in said
    assert not (tmp_path / "mobilenet_v2").exists()


def test_random_weights_do_without_names(run, applications, tmp_path):
    """With --weights none a model without ImageNet's names is made, and it is said."""
    applications.fails["classes"] = DownloadError("no such host")
    status, said = run("mobilenet_v2", "--weights", "none")
    assert status == 0
    assert "Answers are predictions by index" in said
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
def test_what_cannot_be_is_refused(run, applications, args, status, expected):
    """A wrong name, size or file is refused before Keras is asked."""
    assert run(*args)[0] == status
    assert expected in run(*args)[1]
    assert not applications.asked


def test_help_lists_the_names(run):
    """`models fetch --help` names each architecture."""
    status, said = run("--help")
    assert status == 0
    listed = said.partition("NAME is one of: ")[2].replace("\n", " ")
    assert {name.strip() for name in listed.split(",")} == set(ARCHITECTURES)


def test_a_model_that_is_there_stays(run, applications, tmp_path):
    """A model is never written over."""
    (tmp_path / "mobilenet_v2").mkdir()
    status, said = run("mobilenet_v2")
    assert status == 1
    assert "exists already" in said
    assert not applications.asked


@pytest.mark.parametrize(
    ("step", "error", "expected"),
    [
        ("build", ModelLoadError("Input size must be at least 32x32"), "at least 32"),
        ("save", OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_a_failure_leaves_nothing_behind(
    run, applications, tmp_path, step, error, expected
):
    """When Keras refuses or the disk is full, that is one line and no folder."""
    applications.fails[step] = error
    status, said = run("mobilenet_v2", "--size", "16")
    assert status == 1
    assert expected in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_classes_are_written_as_imagenet_has_them(run, tmp_path):
    """classes.json has ImageNet's own form."""
    run("mobilenet_v2")
    text = (tmp_path / "mobilenet_v2" / "classes.json").read_text()
    assert json.loads(text) == CLASSES
