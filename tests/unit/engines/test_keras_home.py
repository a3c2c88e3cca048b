"""Keras's folder, as Basket's processes show it to Keras."""

import os
from pathlib import Path

import pytest

from app.engines.keras.home import hide_config


@pytest.fixture(name="home")
def _home(tmp_path, monkeypatch):
    """The folder that KERAS_HOME names, with a keras.json and a download."""
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    (home / "keras.json").write_text('{"floatx": "float16"}')
    (home / "models" / "weights.h5").touch()
    monkeypatch.setenv("KERAS_HOME", str(home))
    return home


def _shown():
    return Path(os.environ["KERAS_HOME"])


def test_folder_has_all_but_keras_json(home):
    """What is there, and what is downloaded from then on, stays in Keras's folder."""
    hide_config()
    assert _shown() != home
    assert sorted(os.listdir(_shown())) == ["datasets", "keras.json", "models"]
    assert (_shown() / "models" / "weights.h5").exists()
    (_shown() / "datasets" / "till.txt").touch()
    assert (home / "datasets" / "till.txt").exists()


def test_processes_share_the_folder_and_start_with_defaults(home, monkeypatch):
    """What somebody has written there is not read; a process inherits the folder."""
    hide_config()
    shared = _shown()
    (shared / "keras.json").write_text('{"floatx": "float16"}')
    hide_config()
    assert _shown() == shared
    monkeypatch.setenv("KERAS_HOME", str(home))
    hide_config()
    assert _shown() == shared
    assert (shared / "keras.json").read_text() == "{}"


def test_keras_json_in_a_folder_that_is_read_only_is_hidden(home, monkeypatch):
    """Then the folder is a temporary one."""
    # Root may write anywhere; so a file is in the way.
    (home / "basket-keras").touch(mode=0o400)
    writable = os.access
    monkeypatch.setattr(
        os,
        "access",
        lambda path, mode: home not in Path(path).parents and writable(path, mode),
    )
    hide_config()
    assert home not in _shown().parents
    assert (_shown() / "models" / "weights.h5").exists()


def test_folder_without_keras_json_stays(home):
    """There is nothing to hide."""
    (home / "keras.json").unlink()
    hide_config()
    assert _shown() == home


def test_folder_of_the_user_is_the_default(home, tmp_path, monkeypatch):
    """Without KERAS_HOME it is ~/.keras, as in Keras."""
    monkeypatch.delenv("KERAS_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    home.rename(tmp_path / "user" / ".keras")
    hide_config()
    assert (_shown() / "models" / "weights.h5").exists()
    assert (_shown() / "keras.json").read_text() == "{}"
