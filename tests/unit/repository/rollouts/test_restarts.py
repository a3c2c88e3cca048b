"""What a restart knows of versions: their record, also a damaged or a lost one."""

import errno
import json
import signal
import subprocess
import sys

import pytest

from app.promotion.record import Record, Recorded, Records
from app.run_dir.json_files import DurableJsonFiles
from testing.server import ROOT
from tests.support.rollout_server import WATCHED_S, shares


@pytest.mark.parametrize("after_s", [0, 100, WATCHED_S - 1])
def test_restart_in_a_rollout_serves_the_proven_version(server, after_s):
    """The new version begins again, with its proof, also after a crash in the watch."""
    server.start()
    server.add(2)
    server.scan()
    server.tick(after_s)
    assert 2 in shares(server.processes[0])
    process = server.restart()
    assert process.opened[0] == ("m", "1")
    server.tick()
    assert shares(process)[1] == pytest.approx(99, abs=0.2)
    assert server.checks.proofs == [(1, 2)] * 2


# What is left of a file, by the kind of damage.
DAMAGES = {
    "empty": lambda _: b"",
    "brace": lambda _: b"{",
    "cut": lambda content: content[: len(content) // 2],
    "null": lambda _: b"null",
    "list": lambda _: b"[]",
    "object": lambda _: b"{}",
    "foreign": lambda _: b'{"proven": 1, "refused": {}, "forced": null}',
    "nested": lambda _: b"[" * 100_000,
}


def damage_record(server, damage, *endings):
    """End the server that has refused version 2, and damage files of its record."""
    server.start()
    server.checks.refusals[2] = "is worse"
    server.add(2)
    server.scan()
    server.close()
    for ending in endings:
        file = server.capture_dir / ".promotions" / f"m.{ending}"
        if damage is None:
            file.unlink()
        else:
            file.write_bytes(damage(file.read_bytes()))


@pytest.mark.parametrize("damage", [*DAMAGES.values(), None], ids=[*DAMAGES, "removed"])
def test_damaged_record_is_read_from_its_copy(server, damage, caplog):
    """A power cut or an editor's mistake loses neither what is proven nor refused."""
    damage_record(server, damage, "json")
    record = server.record()
    assert (record.proven.version, record.refused[2].reason) == (1, "is worse")
    caplog.clear()
    process = server.restart()
    assert process.opened == [("m", "1")]
    (logged,) = [each for each in caplog.messages if "its copy is read" in each]
    assert "m.json" in logged
    server.add(3)
    server.scan()
    server.tick(WATCHED_S)
    (server.capture_dir / ".promotions" / "m.copy").unlink()
    assert server.record().proven.version == 3


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_lost_record_serves_the_oldest_version(server, damage):
    """A version that may have been refused serves only after a proof or by force."""
    damage_record(server, damage, "json", "copy")
    for _ in range(2):
        process = server.restart()
        for _ in range(2):
            server.scan()
            server.tick()
        assert process.opened == [("m", "1")]
        assert shares(process) == {1: 100}
        (problem,) = process.catalog.problems()["m"]
        assert "version 2: not promoted: the record in BASKET_CAPTURE_DIR" in problem
    server.add(3)
    server.scan()
    assert server.checks.proofs == [(1, 2), (1, 3)]
    Records(server.capture_dir).retry("m", 2)
    (server.models / "m" / "3" / "weights").unlink()
    (server.models / "m" / "3").rmdir()
    server.scan()
    assert server.checks.proofs[2:] == [(1, 2)]
    assert "is worse" in str(server.record().refused)


def test_record_is_lost_until_the_oldest_version_serves(server):
    """Neither a refusal ends that, nor an oldest version that can't be loaded."""
    damage_record(server, lambda _: b"", "json", "copy")
    Records(server.capture_dir).refuse("m", 7, "content", "is worse")
    process = server.restart(broken=1)
    assert process.serving("m") == set()
    assert server.record().is_lost
    server.add(1, "mended")
    server.scan()
    assert process.serving("m") == {1}
    record = server.record()
    assert (record.proven.version, [*record.refused], record.is_lost) == (
        *(1, [2, 7]),
        False,
    )


def test_forced_version_serves_where_the_record_is_lost(server):
    """That is how an operator decides which version is good."""
    damage_record(server, lambda _: b"", "json", "copy")
    content = server.content(2)
    Records(server.capture_dir).force("m", 2, content, {})
    process = server.restart()
    assert shares(process) == {2: 100}
    assert server.record() == Record(Recorded(2, content))


KILLED_AT_A_RENAME = """
import os, signal, sys
from pathlib import Path
from app.promotion.record import Records
records, renames = Records(Path(sys.argv[1])), int(sys.argv[2])
records.prove("m", 1, "one")
replace = os.replace
def replace_or_die(*args):
    global renames
    if renames == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    renames -= 1
    replace(*args)
os.replace = replace_or_die
records.refuse("m", 2, "two", "is worse")
"""


@pytest.mark.parametrize("renames", [0, 1])
def test_kill_between_write_and_rename_keeps_the_record_before(tmp_path, renames):
    """A process that ends in a write leaves a whole record, and no lock."""
    command = [sys.executable, "-c", KILLED_AT_A_RENAME, tmp_path, str(renames)]
    done = subprocess.run(command, cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert Records(tmp_path).of("m") == Record(Recorded(1, "one"))
    (tmp_path / ".promotions" / "m.json").write_bytes(b"")
    assert len(Records(tmp_path).of("m").refused) == renames
    Records(tmp_path).refuse("m", 3, "three", "is slow")
    assert Records(tmp_path).of("m").refused[3].reason == "is slow"


def test_record_is_json(server):
    """An operator can read it."""
    server.start()
    text = (server.capture_dir / ".promotions" / "m.json").read_text()
    assert json.loads(text)["proven"][0] == 1


def test_change_that_a_full_disk_held_up_is_written_once_there_is_room(
    server, monkeypatch
):
    """A worker does not lose a refusal at a restart, or overlook an operator."""
    process = server.start()
    server.checks.refusals[2] = "is worse"
    server.add(2)
    with monkeypatch.context() as patch:
        patch.setattr(DurableJsonFiles, "_write", full_disk)
        server.scan()
        server.tick()
        assert server.record().refused == {}
    server.scan()
    assert server.record().refused[2].reason == "is worse"
    files = Records(server.capture_dir, keeps_unwritten=False)
    files.force("m", 2, server.content(2), {})
    server.scan()
    server.tick(WATCHED_S)
    assert shares(process)[2] > 0


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_record_that_can_not_be_written_is_kept_in_memory(server, caplog):
    """A full disk stops no promotion; the reason is logged once."""
    server.capture_dir.touch()
    process = server.start()
    server.checks.refusals[2] = "is worse"
    server.add(2)
    for _ in range(3):
        server.scan()
        server.tick()
    assert shares(process) == {1: 100}
    assert server.checks.proofs == [(1, 2)]
    errors = [each for each in caplog.records if "record of model m" in each.message]
    assert len(errors) == 1
    server.capture_dir.unlink()
    server.add(3)
    server.scan()
    server.tick(WATCHED_S)
    assert server.record().proven.version == 3
