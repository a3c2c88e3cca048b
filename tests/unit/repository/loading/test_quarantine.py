"""Quarantine of versions whose load crashed its process."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.errors import NotYetLoadable
from app.repository.loading.quarantine import Quarantine
from app.run_dir import notes as notes_module
from app.run_dir.notes import Notes
from tests.support.clocks import standing_clock

ROOT = Path(__file__).parents[4]
FILES = frozenset({("model.keras", 1, 2)})
PROCESS = """
import os, signal, sys
from pathlib import Path
from app.repository.loading.quarantine import Quarantine
from app.run_dir.notes import Notes
notes = Notes(Path(sys.argv[1]))
with Quarantine(notes).loading("till", 1, frozenset()):
    print(len(notes.all()), flush=True)
    {end}
"""


class Loads:
    """Loads in simulated processes, with a clock set by hand."""

    def __init__(self, folder, patch):
        self.patch, self.dead = patch, set()
        self.clock = standing_clock(patch, "app.repository.loading.quarantine")
        patch.setattr(notes_module, "is_alive", lambda pid: pid not in self.dead)
        self.quarantine = Quarantine(Notes(folder))
        self.under_way = ExitStack()

    def begin(self, name="till", version=1, files=FILES):
        """Begin a load in a new process, and return its id."""
        pid = 1000 + len(self.dead)
        self.patch.setattr(os, "getpid", lambda: pid)
        self.under_way.enter_context(self.quarantine.loading(name, version, files))
        return pid

    def crash(self):
        self.dead.add(self.begin())

    def succeed(self):
        with self.quarantine.loading("till", 1, FILES):
            pass


@pytest.fixture
def loads(tmp_path, monkeypatch):
    with (loads := Loads(tmp_path / "loading", monkeypatch)).under_way:
        yield loads


def test_second_crash_during_load_quarantines_the_version(loads):
    """The quarantine lasts a minute after the second crash, and two after the third."""
    loads.crash()
    loads.crash()
    for pause_s, crashes in ((60, 2), (120, 3)):
        loads.clock.now += pause_s - 1
        with pytest.raises(NotYetLoadable, match=f"ended its process {crashes} times"):
            loads.succeed()
        loads.clock.now += 1
        loads.crash()


def test_quarantine_lasts_at_most_an_hour(loads):
    """After any number of crashes a version is tried again each hour."""
    for _ in range(20):
        loads.crash()
        loads.clock.now += 3600
    loads.succeed()


def test_successful_load_resets_the_count_of_crashes(loads):
    """Crashes before a successful load do not count."""
    for _ in range(2):
        loads.crash()
        loads.succeed()


@pytest.mark.parametrize(
    "other",
    [
        {"name": "tills"},
        {"version": 2},
        {"files": frozenset({("model.keras", 1, 3)})},
    ],
)
def test_quarantine_is_for_one_version_and_its_files(loads, other):
    """Another model or version, or the version with other files, loads at once."""
    for _ in range(2):
        loads.crash()
    loads.begin(**other)


def test_load_by_hand_ends_the_quarantine(loads):
    """A released model has no crashes."""
    for _ in range(2):
        loads.crash()
    loads.quarantine.release("till")
    loads.succeed()


def test_concurrent_loads_are_no_crashes(loads):
    """Several workers load the same version at the same time."""
    for _ in range(3):
        loads.begin()
    loads.succeed()


def test_model_loads_if_no_note_can_be_written(tmp_path):
    """A run directory that can't be written prevents no load."""
    (tmp_path / "file").touch()
    with Quarantine(Notes(tmp_path / "file" / "topic")).loading("till", 1, FILES):
        pass


@pytest.mark.parametrize(
    ("end", "notes"), [("os.kill(os.getpid(), signal.SIGKILL)", 1), ("sys.exit()", 0)]
)
def test_shutdown_during_load_is_no_crash(tmp_path, end, notes):
    """A killed process leaves its note, and a process that exits removes it."""
    program = [sys.executable, "-c", PROCESS.format(end=end), tmp_path]
    ran = subprocess.run(program, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ran.stdout == "1\n"
    assert len(Notes(tmp_path).all()) == notes
