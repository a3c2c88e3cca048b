"""What the commands write is there as a whole or not at all."""

import os

import pytest

from app.commands.aside import written_aside
from app.errors import ModelLoadError


def write(target, error=None):
    """Write a version that holds a file; what else is there when it is half done."""
    with written_aside(target) as partial:
        partial.mkdir()
        (partial / "file").write_text("whole")
        seen = [path.name for path in target.parent.iterdir()]
        if error is not None:
            raise error
        return seen


def test_what_is_written_aside_comes_as_a_whole(tmp_path):
    """The folder appears under its name when the body is done, and not before."""
    (half,) = write(tmp_path / "2")
    assert half.startswith(".")
    assert [path.name for path in tmp_path.iterdir()] == ["2"]
    assert (tmp_path / "2" / "file").read_text() == "whole"


def test_the_umask_says_who_may_read_it(tmp_path):
    """A folder that was written aside may be entered by all, as one made in place."""
    before = os.umask(0o022)
    try:
        write(tmp_path / "2")
    finally:
        os.umask(before)
    assert (tmp_path / "2").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ModelLoadError("no")])
def test_what_is_interrupted_leaves_nothing(tmp_path, error):
    """An error or Ctrl-C goes on, and what was written is gone."""
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
def test_the_reason_is_told_in_one_line(tmp_path, error, reason):
    """An error of the system is told with its reason, also where that has no field."""
    with pytest.raises(ModelLoadError) as raised:
        write(tmp_path / "2", error)
    assert str(raised.value).startswith(f"{tmp_path / '2'} can't be written: ")
    assert str(raised.value).endswith(reason)


def test_folders_above_come_with_what_is_written(tmp_path):
    """Folders that are missing above it are made at the end, for what is whole only."""
    target = tmp_path / "big" / "1" / "model.keras"
    with pytest.raises(KeyboardInterrupt), written_aside(target):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with written_aside(target) as partial:
        partial.write_text("whole")
        assert not (tmp_path / "big").exists()
    assert target.read_text() == "whole"


@pytest.mark.parametrize("error", [None, ModelLoadError("no")])
def test_what_others_write_aside_stays(tmp_path, error):
    """A version that somebody else is writing as .partial-2 is not touched."""
    theirs = tmp_path / ".partial-2" / "theirs"
    theirs.parent.mkdir()
    theirs.touch()
    try:
        write(tmp_path / "2", error)
    except ModelLoadError:
        assert not (tmp_path / "2").exists()
    assert theirs.exists()


def test_two_at_a_time_do_not_meet(tmp_path):
    """Of two that write the same version the first to end has it, as it wrote it."""

    def write_late():
        with written_aside(tmp_path / "2") as late:
            late.mkdir()
            (late / "late").touch()
            write(tmp_path / "2")
            assert (late / "late").exists()

    with pytest.raises(ModelLoadError, match="2 can't be written: Directory not empty"):
        write_late()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["2", "file"]


def test_what_came_to_be_meanwhile_is_not_written_over(tmp_path):
    """A version that somebody else made in the meantime stays as it is."""
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "theirs").touch()
    with pytest.raises(ModelLoadError, match="2 can't be written: Directory not empty"):
        write(tmp_path / "2")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["2", "theirs"]


def test_a_file_takes_the_place_of_the_one_before(tmp_path):
    """A file that was written aside replaces the one that has its name."""
    file = tmp_path / "model.keras"
    file.write_text("before")
    with written_aside(file) as partial:
        partial.write_text("after")
        assert file.read_text() == "before"
    assert file.read_text() == "after"


def test_a_folder_that_takes_nothing_is_told_at_once(tmp_path):
    """Where nothing can be written, the body does not even start."""
    (tmp_path / "m").touch()
    with (
        pytest.raises(ModelLoadError, match="2 can't be written: Not a directory"),
        written_aside(tmp_path / "m" / "2"),
    ):
        pytest.fail("the body has run")
