"""Atomic writes of files and folders by the commands."""

import os

import pytest

from app.commands.atomic_write import atomic_write
from app.errors import ModelLoadError


def write(target, error=None):
    """Write a folder with one file; return the names beside it before it is renamed."""
    with atomic_write(target) as partial:
        partial.mkdir()
        (partial / "file").write_text("whole")
        seen = [path.name for path in target.parent.iterdir()]
        if error is not None:
            raise error
        return seen


def test_folder_appears_only_when_complete(tmp_path):
    """The folder is hidden until the body ends, and then has its name."""
    (partial,) = write(tmp_path / "2")
    assert partial.startswith(".")
    assert [path.name for path in tmp_path.iterdir()] == ["2"]
    assert (tmp_path / "2" / "file").read_text() == "whole"


def test_written_folder_has_the_umask_permissions(tmp_path):
    """The folder has the permissions of one that is made in place."""
    before = os.umask(0o022)
    try:
        write(tmp_path / "2")
    finally:
        os.umask(before)
    assert (tmp_path / "2").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ModelLoadError("no")])
def test_interrupted_write_leaves_nothing(tmp_path, error):
    """An error or Ctrl-C propagates, and the partial folder is removed."""
    with pytest.raises(type(error)):
        write(tmp_path / "2", error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        # As h5py raises them.
        (
            OSError("[Errno 28] Can't write data\n(no space)"),
            "Can't write data (no space)",
        ),
    ],
)
def test_os_error_becomes_a_one_line_load_error(tmp_path, error, reason):
    """The error has the reason, also for OSErrors without strerror."""
    with pytest.raises(ModelLoadError) as raised:
        write(tmp_path / "2", error)
    assert str(raised.value).startswith(f"{tmp_path / '2'} can't be written: ")
    assert str(raised.value).endswith(reason)


def test_parent_folders_are_created_at_the_end(tmp_path):
    """Missing parent folders are created only for a complete file."""
    target = tmp_path / "big" / "1" / "model.keras"
    with pytest.raises(KeyboardInterrupt), atomic_write(target):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with atomic_write(target) as partial:
        partial.write_text("whole")
        assert not (tmp_path / "big").exists()
    assert target.read_text() == "whole"


def test_first_of_two_concurrent_writers_wins(tmp_path):
    """Of two writers of one version, the first to finish keeps it; the other fails."""

    def write_second():
        with atomic_write(tmp_path / "2") as second:
            second.mkdir()
            (second / "second").touch()
            write(tmp_path / "2")
            assert (second / "second").exists()

    with pytest.raises(ModelLoadError, match="2 can't be written: Directory not empty"):
        write_second()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["2", "file"]


def test_folder_created_meanwhile_is_not_overwritten(tmp_path):
    """A version that another process created meanwhile stays as it is."""
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "theirs").touch()
    with pytest.raises(ModelLoadError, match="2 can't be written: Directory not empty"):
        write(tmp_path / "2")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["2", "theirs"]


def test_file_replaces_an_existing_file(tmp_path):
    """A written file replaces the file of its name at the end."""
    file = tmp_path / "model.keras"
    file.write_text("before")
    with atomic_write(file) as partial:
        partial.write_text("after")
        assert file.read_text() == "before"
    assert file.read_text() == "after"


def test_unwritable_target_fails_before_the_body_runs(tmp_path):
    """If nothing can be written, the body does not run."""
    (tmp_path / "m").touch()
    with (
        pytest.raises(ModelLoadError, match="2 can't be written: Not a directory"),
        atomic_write(tmp_path / "m" / "2"),
    ):
        pytest.fail("the body has run")
