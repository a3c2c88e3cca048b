"""Keys from a file: changes, broken files, and the copy for workers that start."""

import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.access.keys import Keys, KeysOfFile
from app.errors import SettingsError
from app.settings import key_file


@pytest.fixture(name="file")
def _file(tmp_path):
    file = tmp_path / "keys"
    file.write_text("old\n")
    return file


@pytest.fixture(name="clock")
def _clock():
    return SimpleNamespace(now=100.0)


@pytest.fixture(name="open_keys")
def _open_keys(file, clock, tmp_path):
    """Open the file as a process does whose server has a run directory."""
    copy = tmp_path / "run" / "api_keys_file"
    copy.parent.mkdir()

    def open_keys(copy=copy):
        return KeysOfFile("api_keys_file", file, copy, lambda: clock.now)

    return open_keys


def known(given):
    """Return which of the keys of these tests are known."""
    return [key for key in ("old", "new", "other") if given.have(key.encode())]


def test_no_keys_are_not_set():
    """Without keys none is required, and no key is known."""
    assert not Keys(()).are_set()
    assert not Keys(()).have(b"")
    assert Keys(("a",)).are_set()
    assert known(Keys(("new", "other"))) == ["new", "other"]


def test_changed_file_is_read_within_a_second(open_keys, file, clock):
    """A changed file counts at the first request after a second."""
    of_file = open_keys()
    assert of_file.are_set()
    file.write_text("new\nother\n")
    clock.now += 0.9
    assert known(of_file) == ["old"]
    clock.now += 0.1
    assert known(of_file) == ["new", "other"]


class Watched(type(Path())):
    """A path that counts the looks at its file's status."""

    looks = 0

    def stat(self, **about):
        self.looks += 1
        return super().stat(**about)


def test_file_is_looked_at_once_a_second_at_most(file, clock):
    """Requests of the same second cost a look at the clock, and no system call."""
    watched = Watched(file)
    of_file = KeysOfFile("api_keys_file", watched, None, lambda: clock.now)
    before = watched.looks
    for _ in range(5):
        clock.now += 0.5
        for _ in range(10):
            of_file.have(b"old")
    assert watched.looks - before == 2


def test_unchanged_file_is_not_read_again(open_keys, clock, monkeypatch):
    """The file's status is enough to tell."""
    of_file = open_keys()
    monkeypatch.setattr(key_file, "read", lambda _: pytest.fail("read again"))
    clock.now += 10
    assert known(of_file) == ["old"]


def test_replaced_file_of_the_same_size_and_time_is_read(open_keys, file, clock):
    """A renamed file, as Kubernetes replaces one, is another file."""
    of_file = open_keys()
    before = file.stat()
    other = file.with_name("other")
    other.write_text("new\n")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(file)
    clock.now += 1
    assert known(of_file) == ["new"]


@pytest.mark.parametrize("content", [None, "", "a b"], ids=["gone", "empty", "bad"])
def test_broken_file_keeps_the_last_good_keys(open_keys, file, clock, content, caplog):
    """It is logged once, without keys; the file counts again when it is good."""
    of_file = open_keys()
    file.unlink()
    if content is not None:
        file.write_text(content)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            clock.now += 1
            assert known(of_file) == ["old"]
        (record,) = caplog.records
        assert record.levelname == "ERROR"
        text = record.getMessage()
        assert text.startswith("BASKET_API_KEYS_FILE: ")
        assert text.endswith("; the last good keys stay valid")
        file.write_text("new")
        clock.now += 1
        assert known(of_file) == ["new"]
        assert caplog.messages[1:] == ["BASKET_API_KEYS_FILE was read again: 1 keys"]
        file.unlink()
        clock.now += 1
        assert known(of_file) == ["new"]
    assert len(caplog.records) == 3
    assert not any(word in caplog.text for word in ("old", "new"))


def test_file_that_comes_back_unchanged_is_good_again(open_keys, file, clock, caplog):
    """A file that was away for a while, such as a mount, is logged once each time."""
    of_file = open_keys()
    away = file.with_name("away")
    for _ in range(2):
        file.rename(away)
        clock.now += 1
        assert known(of_file) == ["old"]
        away.rename(file)
        clock.now += 1
        assert known(of_file) == ["old"]
    assert len(caplog.records) == 2


def test_broken_file_at_the_start_is_a_configuration_error(open_keys, file):
    """Without a copy of the last good keys there is nothing to start with."""
    file.unlink()
    for copy in ({}, {"copy": None}):
        with pytest.raises(SettingsError, match=r"^BASKET_API_KEYS_FILE='.*': No such"):
            open_keys(**copy)


def test_worker_that_starts_while_the_file_is_broken_has_the_last_good_keys(
    open_keys, file, clock, caplog
):
    """Another worker of the server left them, as it read them last."""
    first = open_keys()
    file.write_text("new")
    clock.now += 1
    assert known(first) == ["new"]
    file.unlink()
    late = open_keys()
    assert known(late) == ["new"]
    assert "the last good keys stay valid" in caplog.text
    file.write_text("other")
    clock.now += 1
    assert known(late) == ["other"]


def test_copy_is_readable_by_the_server_alone(open_keys, tmp_path):
    """The copy has no rights for others, and no temporary file is left."""
    open_keys()
    (copy,) = (tmp_path / "run").iterdir()
    assert copy.stat().st_mode & 0o777 == 0o600


def test_copy_that_can_not_be_written_is_no_error(open_keys, file, clock, tmp_path):
    """A full disk does not keep a new key out."""
    of_file = open_keys(tmp_path / "none" / "keys")
    file.write_text("new")
    clock.now += 1
    assert known(of_file) == ["new"]
