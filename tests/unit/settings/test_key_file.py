"""Files of keys: what is a key, what is an error, and that no error shows a key."""

import os

import pytest

from app.errors import SettingsError
from app.settings import Settings, key_file


@pytest.fixture(name="file")
def _file(tmp_path):
    return tmp_path / "keys"


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        (b"one", ("one",)),
        (b"one\ntwo\n", ("one", "two")),
        (b"one\r\ntwo\r\n", ("one", "two")),
        (b"\n  one  \n\n\ttwo\n", ("one", "two")),
        (b"# of the tills\none\n  # of the web shop\ntwo#2", ("one", "two#2")),
        (b"~!+/=-._:;", ("~!+/=-._:;",)),
    ],
)
def test_each_line_is_a_key(file, content, keys):
    """Blank lines, comments and spaces around a key are skipped."""
    file.write_bytes(content)
    assert key_file.read(file) == keys


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file has no key"),
        (b"\n \n# none\n", "the file has no key"),
        (b"good\ns3cret,other", "line 2: expected one key"),
        (b"s3cret other", "line 1: expected one key"),
        (b"s3cret\x00", "line 1: expected one key"),
        ("s3cretü".encode(), "line 1: expected one key"),
        (b"\xef\xbb\xbfs3cret", "line 1: expected one key"),
        (b"\xff\xfes\x003\x00", "line 1: expected one key"),
        (b"a\n" * (1 << 19) + b"s3cret", "larger than 1048576 bytes"),
    ],
    ids=lambda each: repr(each[:12]),
)
def test_malformed_file_is_a_configuration_error(file, content, problem):
    """The error has the line, and no part of a key."""
    file.write_bytes(content)
    with pytest.raises(SettingsError) as raised:
        key_file.read(file)
    assert problem in str(raised.value)
    assert "s3" not in str(raised.value)


@pytest.mark.parametrize("setting", ["api_keys_file", "admin_keys_file"])
def test_check_names_the_setting_and_the_file(file, setting):
    """The error of a start has the variable; a good file, or none, is no error."""
    key_file.check(Settings())
    settings = Settings(**{setting: file})
    with pytest.raises(SettingsError) as raised:
        key_file.check(settings)
    text = f"BASKET_{setting.upper()}={str(file)!r}: No such file or directory"
    assert str(raised.value) == text
    file.write_text("one")
    key_file.check(settings)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read any file")
def test_unreadable_file_is_a_configuration_error(file):
    """A file of another user is refused with the reason."""
    file.write_text("one")
    file.chmod(0)
    with pytest.raises(SettingsError, match="Permission denied"):
        key_file.read(file)


def test_pipe_is_refused_at_once(tmp_path):
    """A named pipe would keep the event loop waiting for a writer."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SettingsError, match="not a regular file"):
        key_file.read(tmp_path / "pipe")


def test_folder_instead_of_a_file_is_a_configuration_error(tmp_path):
    """The reason is that of the operating system."""
    with pytest.raises(SettingsError, match="Is a directory"):
        key_file.read(tmp_path)
