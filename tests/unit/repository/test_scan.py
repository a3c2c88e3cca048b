"""What is read from the folder of models."""

import os
from pathlib import Path

import pytest

from app.errors import SettingsError
from app.repository.scan import content, fingerprint, has_changed, scan
from app.settings import Settings

# A link to such a name can't be followed, by root neither.
TOO_LONG = "x" * 300


def _scan(folder):
    return scan(folder, Settings(model_dir=folder))


@pytest.mark.parametrize(
    ("folders", "versions"),
    [
        pytest.param(["1"], [1], id="one"),
        pytest.param(["9", "10"], [9, 10], id="two"),
        pytest.param(["2", "007"], [2, 7], id="leading zeros"),
        pytest.param(["1", "latest", ".3", "4x", "-5", "٦"], [1], id="other names"),
        pytest.param(["1", "9" * 19], [1], id="more digits than a version has"),
        pytest.param([], [], id="none"),
    ],
)
def test_versions_are_folders_with_whole_numbers(tmp_path, folders, versions):
    """Of a model's folders those named by a whole number are its versions."""
    (tmp_path / "flowers").mkdir()
    for folder in folders:
        (tmp_path / "flowers" / folder).mkdir()
    assert sorted(_scan(tmp_path)["flowers"].versions) == versions


def test_a_file_with_a_number_is_no_version(tmp_path):
    """A version is a folder, so that a file called 2 is none."""
    (tmp_path / "flowers" / "1").mkdir(parents=True)
    (tmp_path / "flowers" / "2").write_text("not a folder")
    assert list(_scan(tmp_path)["flowers"].versions) == [1]


def test_hidden_folders_and_files_are_no_models(tmp_path):
    """Folders that begin with a dot or an underscore, and no folders, are no models."""
    for name in (".git", "__pycache__", "_old", "lost+found", "flowers"):
        (tmp_path / name / "1").mkdir(parents=True)
    (tmp_path / "README.md").write_text("about the models")
    (tmp_path / "link").symlink_to("nowhere")
    assert list(_scan(tmp_path)) == ["flowers"]


@pytest.mark.parametrize(
    ("files", "notes"),
    [
        pytest.param(
            ["flowers/1/model.keras", "flowers/v3/model.h5"],
            [
                "v3 holds model.h5 and is no version: the name of one is a number, "
                "such as 2"
            ],
            id="a version by another name",
        ),
        pytest.param(
            ["flowers/01/model.keras", "flowers/1/model.keras"],
            ["01 is left out: 1 is version 1 too"],
            id="one number twice",
        ),
        pytest.param(
            ["flowers/model.keras"],
            ["model.keras lies in flowers: move it to flowers/1"],
            id="no version folder",
        ),
        pytest.param(
            ["flowers/saved_model.pb", "flowers/4/model.h5"],
            ["saved_model.pb lies in flowers: move it to flowers/5"],
            id="beside a version folder",
        ),
        pytest.param(
            ["1/model.keras"],
            [
                "holds model.keras, so BASKET_MODEL_DIR looks like one model: it is to "
                "be the folder above"
            ],
            id="a model as the folder of models",
        ),
        pytest.param(["1/1/model.keras"], [], id="a model called 1"),
        pytest.param(
            [f"flowers/{name}" for name in (".2/model.h5", "_2/model.h5", "src/a.py")],
            [],
            id="what is no version and does not look like one",
        ),
    ],
)
def test_what_only_looks_like_a_version_is_noted(tmp_path, files, notes):
    """A model that lies where none is looked for is told, with its right place."""
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (model,) = _scan(tmp_path).values()
    assert model.notes == notes


def test_a_link_to_a_version_is_nobodys_mistake(tmp_path):
    """A link such as latest says nothing wrong."""
    (tmp_path / "flowers" / "1").mkdir(parents=True)
    (tmp_path / "flowers" / "1" / "model.keras").touch()
    (tmp_path / "flowers" / "latest").symlink_to("1")
    assert _scan(tmp_path)["flowers"].notes == []


def test_a_bad_configuration_spoils_only_its_own_model(tmp_path):
    """A model whose basket.toml can't be read is found, with what is wrong with it."""
    for name in ("apples", "pears"):
        (tmp_path / name / "1").mkdir(parents=True)
    (tmp_path / "apples" / "basket.toml").write_text("size = 3")
    found = _scan(tmp_path)
    assert isinstance(found["apples"].config, SettingsError)
    assert list(found["apples"].versions) == [1]
    assert not isinstance(found["pears"].config, SettingsError)


def test_whatever_a_model_s_configuration_raises_spoils_only_its_own_model(
    tmp_path, monkeypatch
):
    """An error that nobody foresaw is that model's own, and the scan goes on."""
    for name in ("apples", "pears"):
        (tmp_path / name / "1").mkdir(parents=True)

    def read(folder, settings):
        return 1 // (folder.name == "pears")

    monkeypatch.setattr("app.repository.scan.read_model_config", read)
    found = _scan(tmp_path)
    assert str(found["apples"].config) == "can't be read (ZeroDivisionError)"
    assert found["pears"].config == 1


def test_a_folder_that_can_not_be_read_spoils_only_its_own_model(tmp_path):
    """A model whose folder can't be read is found, and says so in place of versions."""
    (tmp_path / "apples").symlink_to(TOO_LONG)
    (tmp_path / "pears" / "1").mkdir(parents=True)
    found = _scan(tmp_path)
    assert str(found["apples"].config) == (
        "its folder can't be read now: File name too long"
    )
    assert list(found["apples"].versions) == []
    assert list(found["pears"].versions) == [1]


def test_a_folder_that_goes_while_it_is_read_is_no_model(tmp_path, monkeypatch):
    """A folder that is taken away between two looks of one scan is left out."""
    for name in ("apples", "pears"):
        (tmp_path / name).mkdir()
    iterdir = Path.iterdir

    def take_away(folder):
        if folder.name == "apples":
            folder.rmdir()
        return iterdir(folder)

    monkeypatch.setattr(Path, "iterdir", take_away)
    assert list(_scan(tmp_path)) == ["pears"]


def test_a_fingerprint_changes_with_any_file(tmp_path):
    """A file that is added, grows or is touched gives a folder another fingerprint."""
    file = tmp_path / "variables" / "weights"
    seen = [fingerprint(tmp_path)]
    file.parent.mkdir()
    file.write_text("1")
    seen.append(fingerprint(tmp_path))
    file.write_text("12")
    os.utime(file, ns=(1, 1))
    seen.append(fingerprint(tmp_path))
    os.utime(file, ns=(1, 2))
    seen.append(fingerprint(tmp_path))
    assert len(set(seen)) == 4
    assert fingerprint(tmp_path) == seen[-1]


def test_a_broken_link_is_no_reason_to_fail(tmp_path):
    """A file that is gone while the folder is read is left out of the fingerprint."""
    (tmp_path / "weights").symlink_to(tmp_path / "nowhere")
    assert fingerprint(tmp_path) == frozenset()


def test_only_files_that_were_there_change_a_version(tmp_path):
    """A version has changed when one of its files has; what comes or goes is none."""
    for name in ("weights", "notes"):
        (tmp_path / "variables").mkdir(exist_ok=True)
        (tmp_path / "variables" / name).write_text("1")
    before = content(tmp_path, fingerprint(tmp_path))
    (tmp_path / "variables" / "more").write_text("1")
    (tmp_path / "variables" / "notes").unlink()
    assert not has_changed(before, tmp_path)
    (tmp_path / "variables" / "weights").write_text("12")
    assert has_changed(before, tmp_path)
    assert not has_changed(None, tmp_path)


def test_only_a_file_s_content_is_compared(tmp_path):
    """A pipe, which would be waited for, is not read, and has not changed."""
    os.mkfifo(tmp_path / "pipe")
    before = content(tmp_path, fingerprint(tmp_path))
    os.utime(tmp_path / "pipe", ns=(1, 1))
    assert not has_changed(before, tmp_path)


@pytest.mark.parametrize("at", [0, -1])
def test_a_copy_of_the_same_is_no_change(tmp_path, at):
    """A file that is only newer is the same; with another byte at an end it is not."""
    file, written = tmp_path / "weights", bytearray(300_000)
    file.write_bytes(written)
    before = content(tmp_path, fingerprint(tmp_path))
    os.utime(file, ns=(1, 1))
    assert not has_changed(before, tmp_path)
    written[at] = 1
    file.write_bytes(written)
    assert has_changed(before, tmp_path)
