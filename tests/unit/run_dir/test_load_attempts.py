"""Versions whose load ends the process."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.errors import NotYetLoadable
from app.run_dir import load_attempts as attempts
from app.run_dir.load_attempts import Attempts
from tests.support.clocks import standing_clock

ROOT = Path(__file__).parents[3]
FILES = frozenset({("model.keras", 1, 2)})
PROCESS = """
import os, signal, sys
from pathlib import Path
from app.run_dir.load_attempts import Attempts
with Attempts(Path(sys.argv[1])).under_way("till", 1, frozenset()):
    print(len(list(Path(sys.argv[1]).rglob("*.*"))), flush=True)
    {end}
"""


class Loads:
    """Loads in processes that are made up, with a clock that is set by hand."""

    def __init__(self, folder, patch):
        self.patch, self.dead = patch, set()
        self.clock = standing_clock(patch, "app.run_dir.load_attempts")
        patch.setattr(attempts, "lives", lambda pid: pid not in self.dead)
        self.attempts = Attempts(folder)
        self.under_way = ExitStack()

    def begin(self, name="till", version=1, files=FILES):
        """Begin in a process of its own; its number."""
        pid = 1000 + len(self.dead)
        self.patch.setattr(attempts.os, "getpid", lambda: pid)
        self.under_way.enter_context(self.attempts.under_way(name, version, files))
        return pid

    def die(self, **what):
        self.dead.add(self.begin(**what))

    def succeed(self):
        with self.attempts.under_way("till", 1, FILES):
            pass


@pytest.fixture
def loads(tmp_path, monkeypatch):
    with (loads := Loads(tmp_path, monkeypatch)).under_way:
        yield loads


def test_a_load_that_ends_its_process_again_is_left_alone(loads):
    """After the second end it waits a minute, and twice as long after a third."""
    loads.die()
    loads.die()
    for pause_s, ends in ((60, 2), (120, 3)):
        loads.clock.now += pause_s - 1
        with pytest.raises(NotYetLoadable, match=f"ended its process {ends} times"):
            loads.succeed()
        loads.clock.now += 1
        loads.die()


def test_no_pause_is_longer_than_an_hour(loads):
    """Whatever it has ended, a version is tried again each hour."""
    for _ in range(20):
        loads.die()
        loads.clock.now += 3600
    loads.succeed()


def test_a_load_that_succeeds_wipes_the_slate(loads):
    """Ends from before a success do not count, as they had another cause."""
    loads.die()
    loads.succeed()
    loads.die()
    loads.succeed()


@pytest.mark.parametrize(
    "other",
    [
        {"name": "tills"},
        {"version": 2},
        {"files": frozenset({("model.keras", 1, 3)})},
    ],
)
def test_others_may_be_loaded(loads, other):
    """Another model or version, or other files of the same, is tried at once."""
    for _ in range(2):
        loads.die()
    loads.begin(**other)


def test_a_model_may_be_tried_again_by_hand(loads):
    """What is forgotten has never been."""
    for _ in range(2):
        loads.die()
    loads.attempts.forget("till")
    loads.succeed()


def test_who_loads_beside_it_is_no_end(loads):
    """Workers load the same at a time."""
    for _ in range(3):
        loads.begin()
    loads.succeed()


def test_without_room_for_a_mark_models_are_loaded(tmp_path):
    """A folder that can't be written keeps nothing from being served."""
    (tmp_path / "file").touch()
    with Attempts(tmp_path / "file").under_way("till", 1, FILES):
        pass


@pytest.mark.parametrize(
    ("end", "marks"), [("os.kill(os.getpid(), signal.SIGKILL)", 1), ("sys.exit()", 0)]
)
def test_a_stop_is_no_end(tmp_path, end, marks):
    """A process that is killed leaves its mark, and one that stops takes it away."""
    program = [sys.executable, "-c", PROCESS.format(end=end), tmp_path]
    ran = subprocess.run(program, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ran.stdout == "1\n"
    assert len(list(tmp_path.rglob("*.*"))) == marks
