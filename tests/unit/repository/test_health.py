"""Liveness of models, over all processes of a server."""

import os
import queue
import shutil
from types import SimpleNamespace

import pytest

from app.repository.health import Health
from app.run_dir.notes import Notes

LIMIT_S = 30


class _Models:
    """A catalog whose models have been stuck for so many seconds."""

    def __init__(self, **stuck_s):
        self._models = {}
        for name, seconds in stuck_s.items():
            self.set(name, lambda seconds=seconds: seconds)

    def set(self, name, stuck_s):
        self._models[name] = SimpleNamespace(name=name, version=3, stuck_s=stuck_s)

    def models(self):
        return list(self._models.values())


def _health(folder, **stuck_s):
    return Health(_Models(**stuck_s), LIMIT_S, Notes(folder))


@pytest.mark.parametrize(
    ("stuck_s", "names"),
    [
        pytest.param({"a": 0.0}, [], id="idle"),
        pytest.param({"a": 30.0}, [], id="as long as a request may wait"),
        pytest.param({"a": 30.1}, ["a version 3"], id="longer"),
        pytest.param({"a": 99, "b": 0, "c": 99}, ["a version 3", "c version 3"]),
    ],
)
def test_model_is_stuck_after_the_request_timeout(stuck_s, names):
    """A model whose jobs wait longer than a request may is stuck."""
    health = _health(None, **stuck_s)
    assert health.stuck() == names
    health.update_notes()
    assert health.stuck() == names


def test_stuck_model_is_known_to_other_processes(tmp_path, monkeypatch):
    """A process names the stuck models of its siblings until they recover."""
    folder = tmp_path / "stuck"
    sibling = _health(folder, good=0)
    assert sibling.stuck() == []
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    _health(folder, bad=40, worse=50).update_notes()
    assert sibling.stuck() == ["bad version 3", "worse version 3"]
    _health(folder, bad=0, worse=60).update_notes()
    assert sibling.stuck() == ["worse version 3"]
    monkeypatch.setattr(os, "getpid", lambda: 4712)
    _health(folder, bad=0, worse=0).update_notes()
    assert sibling.stuck() == ["worse version 3"]


def test_notes_are_updated_each_second_after_errors_too(tmp_path, monkeypatch):
    """Neither an error of a model nor a missing run directory ends the updates."""
    models, sleeps, wake_up = _Models(), queue.Queue(), queue.Queue()

    def sleep(seconds):
        sleeps.put(seconds)
        wake_up.get()

    monkeypatch.setattr("app.repository.health.time", SimpleNamespace(sleep=sleep))
    folder = tmp_path / "run" / "stuck"
    health = Health(models, LIMIT_S, Notes(folder))
    for _ in range(2):
        health.start()
    assert sleeps.get(timeout=10) == 1
    models.set("bad", lambda: 1 / 0)
    wake_up.put(True)
    assert sleeps.get(timeout=10) == 1
    folder.parent.mkdir()
    models.set("bad", lambda: 40)
    wake_up.put(True)
    assert sleeps.get(timeout=10) == 1
    assert _health(folder).stuck() == ["bad version 3"]


def test_failed_update_of_notes_is_logged_once(tmp_path, caplog):
    """An error is logged, and again only after an update without error."""
    run_directory = tmp_path / "run"
    health = _health(run_directory / "stuck", bad=40)

    def logged():
        caplog.clear()
        health.update_notes()
        return [record.message for record in caplog.records]

    first = logged()
    assert len(first) == 1
    assert "stuck models can't be shown to other processes: " in first[0]
    assert "No such file or directory" in first[0]
    assert logged() == []
    run_directory.mkdir()
    assert logged() == []
    assert _health(run_directory / "stuck").stuck() == ["bad version 3"]
    shutil.rmtree(run_directory)
    assert logged() == first
