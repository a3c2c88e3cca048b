"""JSON values that processes share by files."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from app.run_dir.json_files import DurableJsonFiles, JsonFiles


def durable(folder):
    """Return files of whole numbers."""
    return DurableJsonFiles(folder, int)


@pytest.fixture(name="files", params=["folder", "memory"])
def _files(request, tmp_path):
    return JsonFiles(tmp_path / "new" if request.param == "folder" else None)


def test_value_is_none_until_it_is_set(files):
    """Each model has its own, whatever is in its name."""
    assert files.get("a") is None
    files.set("a", [1, {"b": 2}])
    files.set("a/proof", "x")
    assert files.get("a") == [1, {"b": 2}]
    assert files.get("a/proof") == "x"


@pytest.mark.parametrize("name", ["\u6a21\u578b" * 40, "a" * 255, "/" * 85])
def test_long_name_has_a_file(files, name):
    """A quoted name may be longer than a file's: each character of Asia takes nine."""
    files.set(name, 1)
    files.set(name + "2", 2)
    assert (files.get(name), files.get(name + "2")) == (1, 2)


def test_lock_keeps_other_threads_out_of_one_model(files):
    """Blocks of other models run meanwhile."""
    entered = threading.Event()

    def enter():
        with files.locked("a"):
            entered.set()

    with files.locked("a"), files.locked("b"):
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.05)
    thread.join()
    assert entered.is_set()


def test_folder_is_for_its_owner_alone(tmp_path):
    """It may name what clients must not see."""
    JsonFiles(tmp_path / "new").set("m", 0)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_write_without_space_keeps_the_value_and_leaves_no_file(tmp_path, monkeypatch):
    """A reader finds the whole old value, and the folder does not fill up."""
    files = durable(tmp_path)
    files.set("m", 1)
    before = sorted(tmp_path.iterdir())

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.set("m", 2)
    assert files.get("m") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_durable_value_is_on_the_disk_before_a_file_is_replaced(tmp_path, monkeypatch):
    """First the copy and its name, then the file and its name."""
    done = []
    fsync, replace = os.fsync, os.replace

    def synced(file):
        done.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file")
        fsync(file)

    def replaced(source, target):
        done.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    durable(tmp_path).set("m", 1)
    assert done == ["file", "m.copy", "folder", "file", "m.json", "folder"]


def test_damaged_file_is_read_from_its_copy_and_raises_without_one(tmp_path, caplog):
    """The log says so once, and the error is that of the file."""
    files = durable(tmp_path)
    files.set("m", 1)
    files.set("m.copy", 2)
    (tmp_path / "m.json").write_text('"foreign"')
    for _ in range(2):
        assert files.get("m") == 1
    assert len(caplog.records) == 1
    (tmp_path / "m.copy").write_text("{")
    with pytest.raises(ValueError, match="'foreign'"):
        files.get("m")
    (tmp_path / "m.copy").unlink()
    with pytest.raises(ValueError, match="'foreign'"):
        files.get("m")
    assert files.get("m.copy") == 2
