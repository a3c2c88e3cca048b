"""The folder of captured requests: order, bound, and what a kill leaves."""

import errno
import os
import signal
import stat
import subprocess
import sys

import pytest

from app.capture.blocks import encode
from app.capture.captured import grouped
from app.capture.reader import read_captured
from app.capture.ring import NEXT, Ring, folder_of
from testing.server import ROOT
from tests.unit.capture.test_blocks import request

KEEP = 1_000_000


def block(number=1, requests=1):
    return encode(grouped([request(number)] * requests))


def names(folder):
    return sorted(each.name for each in folder.glob("*.*") if each.name != ".next")


def ids(folder):
    groups = read_captured(folder).groups
    return [each for group in groups for each in group.columns["request_id"].tolist()]


@pytest.fixture(name="folder")
def _folder(tmp_path):
    return folder_of(tmp_path / "captured", "till")


def test_only_the_owner_may_read(folder):
    """Files have mode 0600 and folders 0700, whatever the umask is."""
    before = os.umask(0)
    try:
        Ring(folder).add(block(), KEEP)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()]
    assert modes == [0o600, 0o600]
    for each in (folder, folder.parent):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700


def test_damaged_number_of_the_next_block_is_not_believed(folder):
    """No process looks for blocks between it and the last one."""
    Ring(folder).add(block(1), KEEP)
    for ring in (Ring(folder), Ring(folder)):
        (folder / NEXT).write_text("9" * 12)
        ring.add(block(2), KEEP)
        (folder / NEXT).write_text("9" * 12)
        ring.add(block(3), KEEP)
    assert names(folder) == [f"{number:012}.npz" for number in range(1, 6)]


def test_name_of_a_model_is_one_folder(tmp_path):
    """A slash in a name leads nowhere else."""
    assert folder_of(tmp_path, "a/../b") == tmp_path / "a%2F..%2Fb"


def test_oldest_blocks_make_room(folder):
    """What all processes keep is bounded, also those that wrote nothing lately."""
    rings = [Ring(folder) for _ in range(3)]
    size = 5000
    for number in range(30):
        rings[number % 2 if number < 20 else 2].add(b"x" * size, 8 * 8192)
        kept = sum(each.stat().st_blocks * 512 for each in folder.glob("*.npz"))
        assert kept <= 8 * 8192
    rings[0].add(b"x" * size, 8 * 8192)
    assert names(folder) == [f"{number:012}.npz" for number in range(24, 32)]


def test_less_to_keep_removes_blocks_at_the_next_write(folder):
    """A smaller keep_mb in basket.toml counts at once."""
    ring = Ring(folder)
    for _ in range(5):
        ring.add(b"x", KEEP)
    ring.add(b"x", 2 * 4096)
    assert names(folder) == ["000000000005.npz", "000000000006.npz"]


def test_block_that_can_not_be_kept_is_refused(folder):
    """It removes no other one."""
    ring = Ring(folder)
    ring.add(b"x", KEEP)
    with pytest.raises(OSError, match="keep_mb") as caught:
        ring.add(b"x" * 5000, 4096)
    assert caught.value.errno == errno.EFBIG
    assert names(folder) == ["000000000001.npz"]


def test_numbers_continue_after_a_restart(folder):
    """A new process writes behind the blocks of the last one, also without the file."""
    Ring(folder).add(b"x", KEEP)
    Ring(folder).add(b"x", KEEP)
    (folder / ".next").unlink()
    Ring(folder).add(b"x", KEEP)
    (folder / ".next").write_text("damaged")
    Ring(folder).add(b"x", KEEP)
    assert names(folder) == [f"{number:012}.npz" for number in range(1, 5)]


KILLED_IN_A_WRITE = """
import os, signal, sys
from pathlib import Path
from app.capture.ring import Ring
write = os.write
def write_half(file, content):
    write(file, content[:len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
os.write = write_half
Ring(Path(sys.argv[1])).add(sys.stdin.buffer.read(), 1_000_000)
"""


def test_kill_in_a_write_loses_one_block_and_the_reader_says_so(folder):
    """The reader names the partial file, and later the gap that it has left."""
    ring = Ring(folder)
    ring.add(block(1), KEEP)
    command = [sys.executable, "-c", KILLED_IN_A_WRITE, folder]
    done = subprocess.run(command, input=block(2), cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    partial = (folder / "000000000002.partial").read_bytes()
    assert partial == block(2)[: len(block(2)) // 2]
    reading = read_captured(folder)
    assert len(reading) == 1
    (note,) = reading.notes
    assert "000000000002.partial is skipped: it is being written, or its" in note
    for other in (ring, Ring(folder)):
        other.add(block(3), KEEP)
    assert ids(folder) == [b"id-1", b"id-3", b"id-3"]
    (note,) = read_captured(folder).notes
    assert note.startswith("1 missing behind 000000000001.npz: a process was killed")


def test_kill_behind_a_write_loses_nothing(folder):
    """A block whose number was not noted is not written over."""
    ring = Ring(folder)
    ring.add(block(1), KEEP)
    (folder / "000000000002.npz").write_bytes(block(2))
    ring.add(block(3), KEEP)
    assert ids(folder) == [b"id-1", b"id-2", b"id-3"]


def test_removed_folder_is_made_again(folder, tmp_path):
    """An operator may remove all that was captured while the server runs."""
    ring = Ring(folder)
    ring.add(block(1), KEEP)
    folder.rename(tmp_path / "away")
    ring.add(block(2), KEEP)
    assert ids(folder) == [b"id-2"]


def test_write_that_fails_leaves_nothing(folder, monkeypatch):
    """A full disk has no partial file, and no gap later."""
    ring = Ring(folder)
    ring.add(block(1), KEEP)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            ring.add(block(2), KEEP)
    assert names(folder) == ["000000000001.npz"]
    ring.add(block(3), KEEP)
    reading = read_captured(folder)
    assert (len(reading), reading.notes) == (2, [])


def test_foreign_and_damaged_files_are_skipped_with_a_word(folder):
    """They are not removed either, and the others are read."""
    ring = Ring(folder)
    ring.add(block(1), KEEP)
    (folder / "notes.txt").write_text("mine")
    (folder / "000000000002.npz").write_bytes(b"damaged")
    os.mkfifo(folder / "pipe")
    ring.add(block(3), KEEP)
    reading = read_captured(folder)
    assert len(reading) == 2
    assert [note.split(":")[0] for note in reading.notes] == [
        "000000000002.npz is skipped",
        "notes.txt is skipped",
        "pipe is skipped",
    ]
    assert (folder / "notes.txt").exists()


def test_exported_file_is_read_like_a_folder(tmp_path):
    """A file of any name may be given."""
    file = tmp_path / "mine.npz"
    file.write_bytes(block(4, requests=3))
    assert len(read_captured(file)) == 3
