"""Whether models make progress, over all processes of a server."""

import os
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from app.serving.health import Health

LIMIT_S = 30


class _Models:
    """A catalog whose models have been stuck for so many seconds."""

    def __init__(self, **stuck_s):
        self._models = [
            SimpleNamespace(
                name=name,
                version=3,
                runner=SimpleNamespace(stuck_s=lambda seconds=seconds: seconds),
            )
            for name, seconds in stuck_s.items()
        ]

    def models(self):
        return self._models


@pytest.mark.parametrize(
    ("stuck_s", "names"),
    [
        pytest.param({"a": 0.0}, [], id="idle"),
        pytest.param({"a": 30.0}, [], id="as long as a request may wait"),
        pytest.param({"a": 30.1}, ["a version 3"], id="longer"),
        pytest.param({"a": 99, "b": 0, "c": 99}, ["a version 3", "c version 3"]),
    ],
)
def test_a_model_is_stuck_that_holds_jobs_longer_than_any_may_wait(stuck_s, names):
    """A model is named once its jobs have waited longer than the limit."""
    assert Health(_Models(**stuck_s), LIMIT_S).stuck() == names


def test_processes_tell_each_other(tmp_path, monkeypatch):
    """A process that is stuck is known to its siblings until it goes on or dies."""
    folder = tmp_path / "stuck"
    sibling = Health(_Models(good=0), LIMIT_S, folder)
    assert sibling.stuck() == []
    other = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    monkeypatch.setattr(os, "getpid", lambda: other.pid)
    try:
        Health(_Models(bad=40), LIMIT_S, folder).note()
        assert sibling.stuck() == ["bad version 3"]
        Health(_Models(bad=0), LIMIT_S, folder).note()
        assert sibling.stuck() == []
        Health(_Models(bad=40), LIMIT_S, folder).note()
    finally:
        other.communicate()
    assert sibling.stuck() == []


def test_a_note_that_can_not_be_written_is_told_once(tmp_path, caplog):
    """A note that fails is logged, not raised, and told again once one has passed."""
    run_dir = tmp_path / "run"
    health = Health(_Models(bad=40), LIMIT_S, run_dir / "stuck")

    def told():
        caplog.clear()
        health.note()
        return [record.message for record in caplog.records]

    first = told()
    assert len(first) == 1
    assert "can't be told what is stuck here: " in first[0]
    assert "No such file or directory" in first[0]
    assert told() == []
    run_dir.mkdir()
    assert told() == []
    assert (run_dir / "stuck" / str(os.getpid())).read_text() == "bad version 3"
    shutil.rmtree(run_dir)
    assert told() == first


def test_alone_nothing_is_written(tmp_path, monkeypatch):
    """Without siblings a note leaves no file."""
    monkeypatch.chdir(tmp_path)
    Health(_Models(bad=40), LIMIT_S).note()
    assert list(tmp_path.iterdir()) == []
