"""Scans of BASKET_MODEL: one file or folder, whose contents are versions."""

import json
import os
import zipfile
from types import SimpleNamespace

import pytest

from app.errors import SettingsError
from app.repository.scan import fingerprint
from app.repository.single_model import SingleModel, scanner
from app.run_dir import RUN_DIR
from app.run_dir.json_files import JsonFiles
from app.settings import Settings

AGES_AGO = 1.0
PASSED_S = 3600.0


@pytest.fixture(name="clock")
def _clock(monkeypatch):
    """A clock that stands `after_s` seconds after the last change of each file."""
    clock = SimpleNamespace(after_s=PASSED_S)
    monkeypatch.setattr(
        "app.repository.single_model.look", lambda version: (fingerprint(version), 0.0)
    )
    time = SimpleNamespace(time=lambda: clock.after_s)
    monkeypatch.setattr("app.repository.single_model.time", time)
    return clock


def _keras_file(file, text):
    """Write a file that ends as a .keras file does."""
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("config.json", text)


def _scan(path, numbers=None, **settings):
    settings = Settings(model=path, **settings)
    (model,) = SingleModel(settings, path, numbers or JsonFiles()).scan().items()
    name, folder = model
    assert folder.name == name
    return folder


def test_file_is_version_1_of_a_model_with_its_name(tmp_path):
    """The version is the file itself, wherever it lies."""
    _keras_file(tmp_path / "my.keras", "1")
    found = _scan(tmp_path / "my.keras")
    assert found.name == "my"
    assert found.versions == {1: tmp_path / "my.keras"}


def test_overwritten_file_is_the_next_version(tmp_path):
    """All processes of a server give it the same number."""
    file, numbers = tmp_path / "my.keras", JsonFiles(tmp_path / "numbers")
    seen = []
    for text in ("1", "12", "123"):
        _keras_file(file, text)
        for process in (numbers, JsonFiles(tmp_path / "numbers")):
            seen += _scan(file, process).versions
    assert seen == [1, 1, 2, 2, 3, 3]


def test_changed_file_in_a_folder_is_the_next_version(tmp_path, clock):
    """A folder of a SavedModel is watched with all its files."""
    numbers = JsonFiles()
    (tmp_path / "out" / "variables").mkdir(parents=True)
    (tmp_path / "out" / "saved_model.pb").write_text("1")
    assert _scan(tmp_path / "out", numbers).versions == {1: tmp_path / "out"}
    (tmp_path / "out" / "variables" / "weights").write_text("1")
    assert _scan(tmp_path / "out", numbers).versions == {2: tmp_path / "out"}
    clock.after_s = 0.5
    assert _scan(tmp_path / "out", numbers).versions == {2: tmp_path / "out"}


@pytest.mark.parametrize("weights", ["model.onnx.data", "encoder.layer.0.weight"])
def test_changed_weights_beside_an_onnx_file_are_the_next_version(
    tmp_path, clock, weights
):
    """Exporters write large ones into one file, or each tensor into its own."""
    numbers = JsonFiles(tmp_path / "numbers")
    for name in ("model.onnx", weights):
        (tmp_path / "my" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "my" / name).write_text(name)
    assert list(_scan(tmp_path / "my", numbers).versions) == [1]
    (tmp_path / "my" / weights).write_text("others")
    assert list(_scan(tmp_path / "my", numbers).versions) == [2]


def test_file_of_the_same_size_and_date_is_the_next_version(tmp_path, clock):
    """Files of an image or an archive may all have one date."""
    numbers = JsonFiles()
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "my.h5").write_text(name)
        os.utime(tmp_path / name / "my.h5", (AGES_AGO, AGES_AGO))
    current = tmp_path / "current"
    for version in (1, 2, 2):
        current.unlink(missing_ok=True)
        current.symlink_to(str(version))
        assert list(_scan(current / "my.h5", numbers).versions) == [version]


def test_file_is_read_again_until_its_time_tells_changes_apart(tmp_path, clock):
    """A last write may be in the same tick of a coarse clock as a scan."""
    file = tmp_path / "my.h5"
    model = SingleModel(Settings(model=file), file, JsonFiles())
    clock.after_s = 1.5
    for version in (1, 2):
        file.write_text(str(version))
        os.utime(file, (AGES_AGO, AGES_AGO))
        assert list(model.scan()["my"].versions) == [version]


def test_changed_rights_and_links_of_a_file_make_no_version(tmp_path, clock):
    """Backups link files, and installers change their owners: the content stays."""
    numbers = JsonFiles()
    file = tmp_path / "my.h5"
    file.write_text("1")
    model = SingleModel(Settings(model=file), file, numbers)
    for change in (lambda: file.chmod(0o600), lambda: os.link(file, tmp_path / "copy")):
        assert list(model.scan()["my"].versions) == [1]
        change()
    assert list(model.scan()["my"].versions) == [1]


@pytest.mark.parametrize(
    ("after_s", "is_incomplete"), [(0.0, True), (0.9, True), (1.1, False), (-60, False)]
)
@pytest.mark.parametrize("name", ["my.h5", "half.keras"])
def test_file_is_no_version_while_it_is_written(
    tmp_path, clock, name, after_s, is_incomplete
):
    """Neither its name nor its content says that an HDF5 file is complete.

    The clock of another machine may be ahead.
    """
    (tmp_path / name).write_bytes(b"PK half a file")
    clock.after_s = after_s
    assert _scan(tmp_path / name).is_incomplete is is_incomplete


def test_whole_zip_file_is_complete_at_once(tmp_path, clock):
    """Its last bytes are written last."""
    clock.after_s = 0.0
    _keras_file(tmp_path / "my.keras", "1")
    assert not _scan(tmp_path / "my.keras").is_incomplete


def test_time_of_a_copy_does_not_make_it_complete(tmp_path):
    """The time of a file can be set back while another one is copied."""
    (tmp_path / "my.h5").write_text("1")
    os.utime(tmp_path / "my.h5", (AGES_AGO, AGES_AGO))
    assert _scan(tmp_path / "my.h5").is_incomplete


def test_version_folders_keep_their_numbers(tmp_path):
    """Their model has the folder's name, and problems of its own."""
    for version in ("3", "v4"):
        (tmp_path / "mnt" / version).mkdir(parents=True)
        (tmp_path / "mnt" / version / "simulated.json").touch()
    found = _scan(tmp_path / "mnt", model_name="my")
    assert found.name == "my"
    assert found.versions == {3: tmp_path / "mnt" / "3"}
    assert found.warnings
    assert not found.is_overwritten


def test_basket_toml_and_classes_beside_the_file_count(tmp_path):
    """A file is not alone in its folder."""
    _keras_file(tmp_path / "my.keras", "1")
    (tmp_path / "names.json").write_text(json.dumps(["cat", "dog"]))
    (tmp_path / "basket.toml").write_text(
        'max_batch_size = 3\n[image]\nsize = [8, 8]\nscale = "0..1"\n'
        'classes = "names.json"\n'
    )
    config = _scan(tmp_path / "my.keras").config
    assert config.settings.max_batch_size == 3
    assert [each.name for each in config.image.classes] == ["cat", "dog"]


@pytest.mark.parametrize("code", [(), ("service.py",)])
def test_edits_of_basket_toml_and_classes_keep_the_version_number(
    tmp_path, clock, code
):
    """The files in a version's folder that are not the model are not counted."""
    numbers, toml = JsonFiles(), tmp_path / "basket.toml"
    image = '[image]\nsize = [8, 8]\nscale = "0..1"\nclasses = "names.json"'
    for name in ("simulated.json", *code):
        (tmp_path / name).write_text("{}")
    seen = [_scan(tmp_path, numbers)]
    for text, names in ((image, ["a"]), (image, ["a", "b"]), ("size =", ["a"])):
        toml.write_text(text)
        (tmp_path / "names.json").write_text(json.dumps(names))
        seen.append(_scan(tmp_path, numbers))
    toml.unlink()
    toml.write_text(image)
    seen.append(_scan(tmp_path, numbers))
    assert [list(each.versions) for each in seen] == [[1]] * 5
    (tmp_path / "simulated.json").write_text('{"base_ms": 1}')
    assert list(_scan(tmp_path, numbers).versions) == [2]


def test_file_beside_the_model_in_its_folder_is_no_new_version(tmp_path, clock):
    """Without service.py only the model's own files are read."""
    numbers = JsonFiles()
    (tmp_path / "simulated.json").write_text("{}")
    for name in ("names.json", "README.md"):
        (tmp_path / name).touch()
        assert list(_scan(tmp_path, numbers).versions) == [1]


def test_bad_basket_toml_is_an_error_of_the_model(tmp_path):
    """The model is found."""
    _keras_file(tmp_path / "my.keras", "1")
    (tmp_path / "basket.toml").write_text("size = 3")
    assert "unknown key 'size'" in str(_scan(tmp_path / "my.keras").config)


def test_missing_file_is_an_error_of_the_model(tmp_path):
    """Clients see it without the path."""
    error = _scan(tmp_path / "my.keras").config
    assert isinstance(error, SettingsError)
    assert str(error).startswith("BASKET_MODEL: No such file or directory; expected")


def test_processes_of_one_server_share_the_numbers(tmp_path, monkeypatch):
    """A worker that starts later continues them."""
    file = tmp_path / "my.keras"
    monkeypatch.setenv(RUN_DIR, str(tmp_path))
    for text, number in (("1", 1), ("12", 2)):
        _keras_file(file, text)
        assert list(scanner(Settings(model=file))()["my"].versions) == [number]
    monkeypatch.delenv(RUN_DIR)
    assert list(scanner(Settings(model=file))()["my"].versions) == [1]
