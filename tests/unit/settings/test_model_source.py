"""BASKET_MODEL: what it may name, the model's name, and the errors."""

import os
from pathlib import Path

import pytest

from app.errors import SettingsError
from app.settings import Settings
from app.settings.model_source import ModelSource, check, find_model, name_of


def _write(folder, *files):
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()


@pytest.mark.parametrize(
    ("files", "path", "found"),
    [
        pytest.param(["my.keras"], "my.keras", ("my.keras", "."), id="Keras file"),
        pytest.param(["a/my.h5"], "a/my.h5", ("a/my.h5", "a"), id="HDF5 file"),
        pytest.param(
            ["out/saved_model.pb", "out/variables/variables.index"],
            *("out", ("out", ".")),
            id="SavedModel",
        ),
        pytest.param(
            ["out/saved_model.pb", "out/basket.toml"],
            *("out", ("out", "out")),
            id="SavedModel with basket.toml",
        ),
        pytest.param(["a/3/model.h5"], "a/3", ("a/3", "a"), id="version folder"),
        pytest.param(["a/3/simulated.json"], "a", (None, "a"), id="version folders"),
        pytest.param(
            ["mnt/my.keras", "mnt/notes.txt"],
            *("mnt", ("mnt/my.keras", "mnt")),
            id="one Keras file in a folder",
        ),
        pytest.param(
            ["mnt/my.keras", "mnt/._my.keras"],
            *("mnt", ("mnt/my.keras", "mnt")),
            id="one Keras file, with what macOS adds",
        ),
        pytest.param(
            ["mnt/my.keras", "mnt/my.tflite", "mnt/my.hdf5"],
            *("mnt", ("mnt/my.keras", "mnt")),
            id="one Keras file beside other kinds",
        ),
        pytest.param(
            ["my.weights.h5"],
            "my.weights.h5",
            ("my.weights.h5", "."),
            id="HDF5 file named as weights",
        ),
        pytest.param(
            ["a/model.keras", "a/2/model.keras"],
            *("a", ("a", ".")),
            id="version folder with folders in it",
        ),
    ],
)
@pytest.mark.parametrize("is_relative", [True, False])
def test_file_and_folder_of_a_model_are_found(
    tmp_path, monkeypatch, files, path, found, is_relative
):
    """A version is absolute; a folder of versions is as the operator wrote it."""
    _write(tmp_path, *files)
    monkeypatch.chdir(tmp_path)
    version, folder = found
    given = Path(path) if is_relative else tmp_path / path
    if version is None:
        assert find_model(given) == ModelSource(None, given)
    else:
        assert find_model(given) == ModelSource(tmp_path / version, tmp_path / folder)


@pytest.mark.parametrize(
    ("files", "path", "reason"),
    [
        pytest.param([], "my.keras", "No such file or directory", id="missing"),
        pytest.param(["my.csv"], "my.csv", "it is another file", id="other file"),
        pytest.param(
            ["a/saved_model.pb"], "a/saved_model.pb", "name its folder", id="part"
        ),
        pytest.param(
            ["my.keras/notes"],
            "my.keras",
            "it holds no model; a folder of models is BASKET_MODEL_DIR",
            id="folder without a model",
        ),
        pytest.param(
            ["a/one.keras", "a/two.h5"],
            "a",
            "it holds one.keras and two.h5: name one",
            id="two Keras files",
        ),
        pytest.param(
            ["a/one.onnx", "a/two.tflite"],
            "a",
            "it holds one.onnx and two.tflite: name one",
            id="two files of other kinds",
        ),
        pytest.param(["a"], "a/my.keras", "Not a directory", id="file as a folder"),
        pytest.param([], "x" * 300, "File name too long", id="too long"),
    ],
)
def test_error_names_the_path_and_what_is_expected(
    tmp_path, monkeypatch, files, path, reason
):
    """The path is shown as the operator wrote it."""
    _write(tmp_path, *files)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError) as raised:
        check(Settings(model=Path(path), model_name="my"))
    assert str(raised.value) == (
        f"BASKET_MODEL='{path}': {reason}; expected a .keras, .h5, .hdf5, .tflite or "
        ".onnx file, the folder of a SavedModel, or a folder of version folders such "
        "as 1"
    )


def test_pipe_is_no_model(tmp_path):
    """An attempt to open it would block."""
    os.mkfifo(tmp_path / "my.keras")
    with pytest.raises(SettingsError, match="it is another file"):
        find_model(tmp_path / "my.keras")


def test_unreadable_file_is_an_error(tmp_path, monkeypatch):
    """The system's reason is shown."""
    _write(tmp_path, "my.keras")

    def denied(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(SettingsError, match=r"^Permission denied; expected a .keras"):
        find_model(tmp_path / "my.keras")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("my.keras", "my"),
        ("a/my.v2.h5", "my.v2"),
        ("a/my.export", "my.export"),
        ("a/b/", "b"),
        ("models/a/12", "a"),
        ("/mnt/models", "models"),
        (".", "here"),
    ],
)
def test_name_is_that_of_the_file_or_folder(tmp_path, monkeypatch, path, name):
    """The number of a version is no name."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert name_of(Settings(model=Path(path))) == name
    assert name_of(Settings(model=Path(path), model_name="other")) == "other"


@pytest.mark.parametrize("path", ["/", "/12", ".keras", ".cache"])
def test_path_without_a_valid_name_asks_for_one(path):
    """The error names the setting that gives a name."""
    with pytest.raises(SettingsError, match=r"can't be the .*: set BASKET_MODEL_NAME$"):
        check(Settings(model=Path(path)))


def test_another_default_model_is_an_error(tmp_path):
    """No request could reach it."""
    _write(tmp_path, "my.keras")
    check(Settings(model=tmp_path / "my.keras", default_model="my"))
    with pytest.raises(SettingsError) as raised:
        check(Settings(model=tmp_path / "my.keras", default_model="digits"))
    assert str(raised.value) == (
        "BASKET_DEFAULT_MODEL='digits': BASKET_MODEL serves one model, and its name is "
        "'my'"
    )


def test_model_and_model_folder_together_are_an_error(tmp_path):
    """Nobody can tell which of the two was meant."""
    environ = {"BASKET_MODEL": "my.keras", "BASKET_MODEL_DIR": str(tmp_path)}
    with pytest.raises(SettingsError, match="are both set: keep one"):
        Settings.from_environment(environ)


def test_model_needs_no_model_folder(tmp_path, monkeypatch):
    """A folder with nothing but a model's file is enough."""
    monkeypatch.chdir(tmp_path)
    assert Settings.from_environment({"BASKET_MODEL": "my.keras"}).model
