"""Version numbers that processes agree on."""

import fcntl

import pytest

from app.run_dir.version_numbers import VersionNumbers


@pytest.mark.parametrize("in_file", [True, False])
def test_appended_contents_are_kept_in_order(tmp_path, in_file):
    """Other objects of the same file see them, too."""
    file = tmp_path / "numbers" if in_file else None
    numbers = VersionNumbers(file)
    for each in ("a", "b"):
        with numbers.locked() as contents:
            contents.append(each)
    with (VersionNumbers(file) if in_file else numbers).locked() as contents:
        assert contents == ["a", "b"]


def test_only_one_process_has_the_list_at_a_time(tmp_path):
    """Another one can lock it afterwards, when the new contents are written."""
    file = tmp_path / "numbers"
    with VersionNumbers(file).locked() as contents, file.open("r+") as other:
        contents.append("a")
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with file.open("r+") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert other.read() == "a\n"
