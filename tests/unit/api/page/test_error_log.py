"""The last error responses of all processes."""

from types import SimpleNamespace

import pytest

from app.api.exchange import HttpResponse
from app.api.page.error_log import KEPT, ErrorLog
from app.api.page.ring import Ring

MODEL = SimpleNamespace(model=SimpleNamespace(name="m"))
NO_MODEL = SimpleNamespace(model=None)


class Log(ErrorLog):
    """An error log whose clock shows `now`."""

    def __init__(self, file=None):
        self.now = 1000.0
        super().__init__(Ring(file, KEPT), lambda: self.now)

    def fail(self, text="full", status=503, exchange=MODEL):
        self.add(
            exchange, HttpResponse(b'{"error":"%s"}' % text.encode(), status=status)
        )


def test_errors_are_listed_with_the_newest_first():
    """Each has its time, model, status and text."""
    log = Log()
    log.fail("full")
    log.now += 1.5
    log.fail("no such model", 404, NO_MODEL)
    assert log.newest() == [
        {"t": 1001.5, "model": None, "status": 404, "text": "no such model"},
        {"t": 1000.0, "model": "m", "status": 503, "text": "full"},
    ]


def test_errors_of_two_processes_are_in_the_order_of_their_times(tmp_path):
    """One of a process that flushes late is older than one that is already there."""
    first, second = Log(tmp_path / "errors"), Log(tmp_path / "errors")
    second.now += 1
    first.fail("older")
    second.fail("newer")
    second.flush()
    first.flush()
    assert [each["text"] for each in second.newest()] == ["newer", "older"]


def test_only_the_newest_few_errors_are_kept_until_a_flush():
    """A flood of errors takes five lines, and the last of them is there."""
    log = Log()
    for number in range(1000):
        log.fail(str(number))
    texts = {each["text"] for each in log.newest()}
    assert texts == {"995", "996", "997", "998", "999"}


def test_fifty_errors_are_kept():
    """The oldest go."""
    log = Log()
    for number in range(60):
        log.now += 1
        log.fail(str(number))
        log.flush()
    assert [each["text"] for each in log.newest()][::49] == ["59", "10"]


def test_strangers_do_not_fill_the_log():
    """A 401 is not noted, a 403 is."""
    log = Log()
    log.fail("no key", 401)
    log.fail("foreign page", 403)
    assert [each["status"] for each in log.newest()] == [403]


@pytest.mark.parametrize("length", [500, 10_000])
def test_long_text_is_cut(length):
    """A text has at most 500 characters."""
    log = Log()
    log.fail("x" * length)
    assert log.newest()[0]["text"] == "x" * 500
