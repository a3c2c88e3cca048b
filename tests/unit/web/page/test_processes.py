"""Age and memory of processes."""

import os
import subprocess
import sys

import pytest

from app.web.page.processes import Process, memory_mib, processes
from app.run_dir.notes import Note, Notes
from testing.memory import resident_mib


def test_process_without_a_master_is_alone():
    """Outside Gunicorn there is the process itself, with its memory and age."""
    (process,) = processes(Notes())
    assert (process.pid, process.kind) == (os.getpid(), "worker")
    assert process.memory_mib == pytest.approx(resident_mib(os.getpid()), rel=0.1)
    assert 0 < process.own_mib < process.memory_mib
    assert 0 < process.age_s < 24 * 3600


def test_noted_processes_follow_their_master(tmp_path):
    """Workers and model processes are listed by their notes; dead ones are not."""
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        child.stdout.readline()
        notes = [Note("worker", os.getpid()), Note("model process", child.pid)]
        for note in (*notes, Note("worker", 4_194_305)):
            (tmp_path / note.file_name()).touch()
        found = {each.pid: each for each in processes(Notes(tmp_path))}
        child.communicate(b"\n")
    kinds = {pid: each.kind for pid, each in found.items()}
    assert kinds == {
        os.getppid(): "master",
        os.getpid(): "worker",
        child.pid: "model process",
    }
    assert found[child.pid].age_s < found[os.getpid()].age_s
    left = {each.pid for each in processes(Notes(tmp_path))}
    assert left == {os.getppid(), os.getpid()}


def test_memory_of_all_has_shared_pages_once():
    """Pages of files are those of the process with most of them."""
    sizes = ((30.0, 20.0), (800.0, 300.0), (700.0, 300.0))
    living = [Process(pid, "worker", 1.0, *each) for pid, each in enumerate(sizes)]
    assert memory_mib(living) == 20 + 300 + 300 + 500
    assert memory_mib([]) == 0
