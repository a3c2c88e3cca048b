"""Keras's folder, as Basket's processes show it to Keras."""

import os
from pathlib import Path

import pytest

from app import run_dir
from app.engines.keras.home import hide_config


@pytest.fixture(name="home")
def _home(tmp_path, monkeypatch):
    """The folder that KERAS_HOME names, with a keras.json and a download."""
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    (home / "keras.json").write_text("{}")
    (home / "models" / "weights.h5").touch()
    monkeypatch.setenv("KERAS_HOME", str(home))
    monkeypatch.delenv(run_dir.RUN_DIR, raising=False)
    return home


def _shown():
    return Path(os.environ["KERAS_HOME"])


@pytest.mark.parametrize("in_run_dir", [False, True])
def test_folder_has_all_but_keras_json(home, tmp_path, monkeypatch, in_run_dir):
    """What is there, and what is downloaded from then on, stays in Keras's folder."""
    if in_run_dir:
        (tmp_path / "run").mkdir()
        monkeypatch.setenv(run_dir.RUN_DIR, str(tmp_path / "run"))
    hide_config()
    assert _shown() != home
    assert (tmp_path / "run" in _shown().parents) == in_run_dir
    assert sorted(os.listdir(_shown())) == ["datasets", "models"]
    assert (_shown() / "models" / "weights.h5").exists()
    (_shown() / "datasets" / "till.txt").touch()
    assert (home / "datasets" / "till.txt").exists()


def test_processes_of_a_server_share_the_folder(home, tmp_path, monkeypatch):
    """A worker finds that of another one; one that it starts inherits it."""
    monkeypatch.setenv(run_dir.RUN_DIR, str(tmp_path))
    hide_config()
    shared = _shown()
    (shared / "keras.json").touch()  # Keras writes its defaults
    hide_config()
    assert _shown() == shared
    monkeypatch.setenv("KERAS_HOME", str(home))
    hide_config()
    assert _shown() == shared


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
    assert not (_shown() / "keras.json").exists()
