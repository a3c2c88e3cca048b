"""Notes that the processes of a server share."""

import os
import subprocess
import sys

import pytest

from app import run_dir
from app.run_dir.notes import Note, Notes, is_alive


@pytest.fixture(name="as_process")
def _as_process(monkeypatch):
    """A function after whose call this process has another id."""
    return lambda pid: monkeypatch.setattr(os, "getpid", lambda: pid)


@pytest.fixture(name="notes", params=["files", "memory"])
def _notes(request, tmp_path):
    return Notes(tmp_path / "topic" if request.param == "files" else None)


def test_note_is_known_by_key_and_process(notes, as_process):
    """Each process has notes of its own, whose keys may contain dots."""
    assert notes.all() == []
    for pid in (7, 8):
        as_process(pid)
        notes.add("a.7")
    notes.add("a.7")
    notes.add("a")
    expected = [Note("a.7", 7), Note("a.7", 8), Note("a", 8)]
    assert sorted(notes.all()) == sorted(expected)
    assert "a" in notes
    assert "a.8" not in notes


def test_notes_are_removed_by_note_by_key_and_by_process(notes, as_process):
    """A removal leaves the notes of other keys or processes."""
    for pid in (7, 8, 9):
        as_process(pid)
        for key in ("a", "b"):
            notes.add(key)
    notes.remove([Note("a", 7), Note("missing", 7)])
    assert len(notes.all()) == 5
    notes.remove_process(8)
    assert len(notes.all()) == 3
    notes.discard("b")
    assert notes.all() == [Note("a", 9)]


def test_note_is_written_atomically_as_an_empty_file(tmp_path):
    """A note has no content that another process could read half written."""
    Notes(tmp_path / "topic").add("a")
    (file,) = (tmp_path / "topic").iterdir()
    assert file.name == f"a.{os.getpid()}"
    assert file.stat().st_size == 0


def test_note_in_a_missing_run_directory_is_an_error(tmp_path):
    """Only the folder of a topic is created, never the run directory."""
    with pytest.raises(FileNotFoundError):
        Notes(tmp_path / "missing" / "topic").add("a")


def test_notes_are_files_under_gunicorn_only(monkeypatch, tmp_path):
    """Without a run directory two objects share no notes."""
    for run_directory, is_shared in ((str(tmp_path), True), ("", False)):
        monkeypatch.setenv(run_dir.RUN_DIR, run_directory)
        run_dir.notes_on("topic").add("a")
        assert ("a" in run_dir.notes_on("topic")) is is_shared


def test_dead_process_is_not_alive(monkeypatch):
    """A process is alive until it has ended, also if another user started it."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert is_alive(process.pid)
    process.communicate()
    assert not is_alive(process.pid)
    assert Note("a", process.pid).is_of_dead_process()

    def kill(*_):
        raise PermissionError

    monkeypatch.setattr(os, "kill", kill)
    assert is_alive(process.pid)
