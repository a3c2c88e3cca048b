"""Whether models make progress, over all processes of a server."""

import os
import queue
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.repository.health import Health

LIMIT_S = 30


class _Models:
    """A catalog whose models have been stuck for so many seconds."""

    def __init__(self, **stuck_s):
        self._models = []
        for name, seconds in stuck_s.items():
            self.stick(name, lambda seconds=seconds: seconds)

    def stick(self, name, stuck_s):
        """Have one more, or another in the place of one that is there."""
        runner = SimpleNamespace(stuck_s=stuck_s)
        others = [model for model in self._models if model.name != name]
        self._models = [*others, SimpleNamespace(name=name, version=3, runner=runner)]

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
    """A process that is stuck is known to its siblings until it goes on."""
    folder = tmp_path / "stuck"
    sibling = Health(_Models(good=0), LIMIT_S, folder)
    assert sibling.stuck() == []
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    Health(_Models(bad=40), LIMIT_S, folder).note()
    assert sibling.stuck() == ["bad version 3"]
    Health(_Models(bad=0), LIMIT_S, folder).note()
    assert sibling.stuck() == []


def test_no_note_is_read_half_written(tmp_path, monkeypatch):
    """Whoever looks while a note is written anew reads the one of before."""
    folder = tmp_path / "stuck"
    stuck = Health(_Models(bad=40), LIMIT_S, folder)
    stuck.note()
    sibling = Health(_Models(), LIMIT_S, folder)
    seen = []

    def write_half(file, text):
        with file.open("w") as note:
            seen.append(sibling.stuck())
            note.write(text)

    monkeypatch.setattr(Path, "write_text", write_half)
    stuck.note()
    assert seen == [["bad version 3"]]
    assert sibling.stuck() == ["bad version 3"]


def test_notes_are_written_again_and_again(tmp_path, monkeypatch):
    """A start has what is stuck noted each second, whatever went wrong before."""
    models, waits, goes_on = _Models(), queue.Queue(), queue.Queue()

    def sleep(seconds):
        waits.put(seconds)
        goes_on.get()

    monkeypatch.setattr("app.repository.health.time", SimpleNamespace(sleep=sleep))
    run_dir = tmp_path / "run"
    health = Health(models, LIMIT_S, run_dir / "stuck")
    for _ in range(2):
        health.start()
    assert waits.get(timeout=10) == 1
    models.stick("bad", lambda: 1 / 0)
    goes_on.put(True)
    assert waits.get(timeout=10) == 1
    run_dir.mkdir()
    models.stick("bad", lambda: 40)
    goes_on.put(True)
    assert waits.get(timeout=10) == 1
    sibling = Health(_Models(), LIMIT_S, run_dir / "stuck")
    assert sibling.stuck() == ["bad version 3"]


def test_alone_nobody_is_told():
    """Without siblings a start starts no thread."""
    before = threading.active_count()
    Health(_Models(bad=40), LIMIT_S).start()
    assert threading.active_count() == before


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
