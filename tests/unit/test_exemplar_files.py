"""Exemplars of several processes: the newest, of those that live."""

import json
import os
import subprocess
from types import SimpleNamespace

import pytest
from prometheus_client.samples import Exemplar

from app.exemplar_files import ExemplarFile, newest, series_of

KEY = json.dumps(["seconds", "seconds_bucket", {"le": "0.5"}, "Help."])
SERIES = series_of("seconds_bucket", {"le": "0.5"})


@pytest.fixture(name="dead")
def _dead():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def write(folder, pid, trace, at):
    file = folder / f"exemplars_{pid}.json"
    file.write_text(json.dumps({KEY: [{"trace_id": trace}, 0.25, at]}))
    return file


def test_newest_exemplar_of_a_series_is_that_of_any_process(tmp_path, monkeypatch):
    """Of two processes, the later one counts."""
    monkeypatch.setattr("app.exemplar_files.time", SimpleNamespace(time=lambda: 20.0))
    own = ExemplarFile(tmp_path)
    for at, trace in ((10, "own"), (30, "other")):
        own.set(KEY, Exemplar({"trace_id": "own"}, 0.25))
        own.write()
        write(tmp_path, os.getppid(), "other", at)
        assert newest(tmp_path)[SERIES].labels == {"trace_id": trace}


def test_exemplars_of_a_dead_process_are_removed(tmp_path, dead):
    """So is what it has written in part."""
    file = write(tmp_path, dead, "old", 10)
    file.with_suffix(".partial").touch()
    assert newest(tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_exemplars_are_written_only_when_one_is_new(tmp_path):
    """A process without traced requests has no file."""
    own = ExemplarFile(tmp_path)
    own.write()
    assert list(tmp_path.iterdir()) == []
    own.set(KEY, Exemplar({"trace_id": "first"}, 0.25))
    own.write()
    (file,) = tmp_path.iterdir()
    file.unlink()
    own.write()
    assert list(tmp_path.iterdir()) == []


def test_foreign_file_is_an_error(tmp_path):
    """Whoever reads says which problem it has."""
    (tmp_path / f"exemplars_{os.getpid()}.json").write_text("no JSON")
    with pytest.raises(ValueError, match="Expecting value"):
        newest(tmp_path)
