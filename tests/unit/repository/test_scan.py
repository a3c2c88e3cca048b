"""Scans of the model folder, and changes of loaded files."""

import os
from pathlib import Path

import pytest

from app.engines.layout import Layout
from app.errors import SettingsError
from app.repository.scan import content, fingerprint, has_changed, scan
from app.settings import Settings

# A link to such a name can't be followed, not even by root.
TOO_LONG = "x" * 300
TIME_NS, LAST = 1_790_000_000_123_456_789, 2**63 - 1


def _scan(folder):
    return scan(folder, Settings(model_dir=folder))


@pytest.mark.parametrize(
    ("folders", "versions"),
    [
        pytest.param(["1"], [1], id="one"),
        pytest.param(["9", "10"], [9, 10], id="two"),
        pytest.param(["2", "007"], [2, 7], id="leading zeros"),
        pytest.param(["1", "latest", ".3", "4x", "-5", "٦"], [1], id="other names"),
        pytest.param([str(TIME_NS), "1"], [1, TIME_NS], id="a time in nanoseconds"),
        pytest.param(
            [str(LAST), str(LAST + 1), "9" * 20], [LAST], id="above what int64 holds"
        ),
        pytest.param([], [], id="none"),
    ],
)
def test_versions_are_folders_with_decimal_names(tmp_path, folders, versions):
    """Other folders of a model, and files, are no versions."""
    (tmp_path / "flowers").mkdir()
    (tmp_path / "flowers" / "8").touch()
    for folder in folders:
        (tmp_path / "flowers" / folder).mkdir()
    assert sorted(_scan(tmp_path)["flowers"].versions) == versions


def test_hidden_folders_and_files_are_no_models(tmp_path):
    """Names that begin with a dot or an underscore are ignored, and so are files."""
    for name in (".git", "__pycache__", "_old", "flowers"):
        (tmp_path / name / "1").mkdir(parents=True)
    (tmp_path / "README.md").write_text("about the models")
    (tmp_path / "link").symlink_to("nowhere")
    assert list(_scan(tmp_path)) == ["flowers"]


SYSTEM_FOLDERS = [
    *("@eaDir", "#recycle", "System Volume Information", "lost+found", "$RECYCLE.BIN"),
    *(".snapshot", "#snapshot", "@Recycle"),
]


@pytest.mark.parametrize("name", SYSTEM_FOLDERS)
def test_folders_of_the_system_are_no_models(tmp_path, name):
    """Neither a model, nor a problem of the folder of models, a model or a version."""
    version = tmp_path / "flowers" / "1"
    for folder in (tmp_path, version.parent, version):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "model.keras").touch()
    layout = Layout(Settings(model_dir=tmp_path))
    assert "version 1 is empty" in layout.missing_file(version)
    (version / "model.keras").touch()
    assert not [*layout.stray_files()]
    (model,) = _scan(tmp_path).values()
    assert (model.name, model.versions) == ("flowers", {1: version})
    assert not model.warnings
    (version / "service.py").touch()
    files = {file for file, *_ in fingerprint(version)}
    assert files == {"model.keras", "service.py"}


@pytest.mark.parametrize(
    ("files", "warnings"),
    [
        pytest.param(
            ["flowers/01/model.keras", "flowers/1/model.keras"],
            ["01 is left out: 1 is version 1 too"],
            id="one number twice",
        ),
        pytest.param(["1/1/model.keras"], [], id="a model called 1"),
    ],
)
def test_version_numbers_are_unique(tmp_path, files, warnings):
    """A second folder with the same number is a warning."""
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (model,) = _scan(tmp_path).values()
    assert model.warnings == warnings


def test_link_to_a_version_is_no_warning(tmp_path):
    """A link such as latest is ignored."""
    (tmp_path / "flowers" / "1").mkdir(parents=True)
    (tmp_path / "flowers" / "1" / "model.keras").touch()
    (tmp_path / "flowers" / "latest").symlink_to("1")
    assert _scan(tmp_path)["flowers"].warnings == []


def test_bad_basket_toml_is_an_error_of_its_model_only(tmp_path):
    """The model is found, with the error in place of its configuration."""
    for name in ("apples", "pears"):
        (tmp_path / name / "1").mkdir(parents=True)
    (tmp_path / "apples" / "basket.toml").write_text("size = 3")
    found = _scan(tmp_path)
    assert isinstance(found["apples"].config, SettingsError)
    assert list(found["apples"].versions) == [1]
    assert not isinstance(found["pears"].config, SettingsError)


def test_unexpected_error_of_a_configuration_is_its_models_only(tmp_path, monkeypatch):
    """The scan continues after an unforeseen error."""
    for name in ("apples", "pears"):
        (tmp_path / name / "1").mkdir(parents=True)

    def read(folder, settings):
        return 1 // (folder.name == "pears")

    monkeypatch.setattr("app.repository.scan.read_model_config", read)
    found = _scan(tmp_path)
    assert str(found["apples"].config) == "can't be read (ZeroDivisionError)"
    assert found["pears"].config == 1


def test_unreadable_model_folder_is_an_error_of_its_model_only(tmp_path):
    """The model is found without versions."""
    (tmp_path / "apples").symlink_to(TOO_LONG)
    (tmp_path / "pears" / "1").mkdir(parents=True)
    found = _scan(tmp_path)
    assert str(found["apples"].config) == (
        "its folder can't be read now: File name too long"
    )
    assert list(found["apples"].versions) == []
    assert list(found["pears"].versions) == [1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"caf\xe9", r"'caf\udce9' is no model: its name is not UTF-8"),
        (b"a" * 201, f"'{'a' * 40}' is no model: its name has more than 200 bytes"),
    ],
)
def test_folder_with_an_impossible_name_is_no_model(tmp_path, name, text):
    """No protocol, or no file of the run directory, can name it; others are found."""
    for each in (name, b"a" * 200):
        (tmp_path / os.fsdecode(each) / "1").mkdir(parents=True)
    assert list(_scan(tmp_path)) == ["a" * 200]
    assert list(Layout(Settings(model_dir=tmp_path)).stray_files()) == [text]


def test_impossible_names_in_a_model_are_in_no_text(tmp_path):
    """Texts about its layout are sent as JSON."""
    odd = os.fsdecode(b"caf\xe9")
    (tmp_path / "m" / odd).mkdir(parents=True)
    (tmp_path / "m" / odd / "model.keras").touch()
    (tmp_path / "m" / "1" / odd).mkdir(parents=True)
    found = _scan(tmp_path)["m"]
    layout = Layout(Settings(model_dir=tmp_path))
    texts = [*found.warnings, layout.missing_file(tmp_path / "m" / "1")]
    assert texts == [
        "version 1 is empty: save its model as $BASKET_MODEL_DIR/m/1/model.keras"
    ]


def test_folder_removed_during_the_scan_is_no_model(tmp_path, monkeypatch):
    """The model is left out."""
    for name in ("apples", "pears"):
        (tmp_path / name).mkdir()
    iterdir = Path.iterdir

    def take_away(folder):
        if folder.name == "apples":
            folder.rmdir()
        return iterdir(folder)

    monkeypatch.setattr(Path, "iterdir", take_away)
    assert list(_scan(tmp_path)) == ["pears"]


def test_fingerprint_changes_with_any_file(tmp_path):
    """An added, grown or touched file changes the fingerprint."""
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


def test_fingerprint_ignores_broken_links(tmp_path):
    """A file that vanishes during the scan is left out."""
    (tmp_path / "weights").symlink_to(tmp_path / "nowhere")
    assert fingerprint(tmp_path) == frozenset()


def test_only_overwritten_files_change_a_version(tmp_path):
    """Added and removed files do not count."""
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


def test_pipe_is_not_read(tmp_path):
    """A read of a pipe would block."""
    os.mkfifo(tmp_path / "pipe")
    before = content(tmp_path, fingerprint(tmp_path))
    os.utime(tmp_path / "pipe", ns=(1, 1))
    assert not has_changed(before, tmp_path)


@pytest.mark.parametrize("at", [0, -1])
def test_copy_with_the_same_content_is_no_change(tmp_path, at):
    """A newer file with equal content is the same; another byte is a change."""
    file, written = tmp_path / "weights", bytearray(300_000)
    file.write_bytes(written)
    before = content(tmp_path, fingerprint(tmp_path))
    os.utime(file, ns=(1, 1))
    assert not has_changed(before, tmp_path)
    written[at] = 1
    file.write_bytes(written)
    assert has_changed(before, tmp_path)
