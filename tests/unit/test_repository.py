"""What is read from the folder of models."""

import os
from pathlib import Path

import pytest

from app.errors import SettingsError
from app.serving.repository import fingerprint, scan
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

    monkeypatch.setattr("app.serving.repository.read_model_config", read)
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
