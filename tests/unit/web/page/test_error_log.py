"""The last error responses of all processes."""

from types import SimpleNamespace

import pytest

from app.call import Call, Head, Peer, Reply
from app.errors import BasketError
from app.web.page.error_log import KEPT, ErrorLog

MODEL = SimpleNamespace(name="m")
OTHER_MODEL = SimpleNamespace(name="other")


class Log(ErrorLog):
    """An error log whose clock shows `now`."""

    def __init__(self, file=None):
        self.now = 1000.0
        super().__init__(file, lambda: self.now)

    def fail(self, text="full", status=503, model=MODEL):
        call = Call(Head("POST", "/predict", "", {}), b"", Peer("", 0, "unix", 0))
        call.model, call.error, call.status = model, BasketError(text), status
        call.reply = Reply(b'{"error":"%s"}' % text.encode(), status=status)
        self.ended([call])


@pytest.fixture(name="file", params=["file", "memory"])
def _file(request, tmp_path):
    return tmp_path / "errors" if request.param == "file" else None


def _error(at, model, status, text, count=1):
    return {"t": at, "model": model, "status": status, "text": text, "count": count}


def test_errors_are_listed_with_the_newest_first():
    """Each has its time, model, status, text and count."""
    log = Log()
    log.fail("full")
    log.now += 1.5
    log.fail("no such model", 404, None)
    assert log.newest() == [
        _error(1001.5, None, 404, "no such model"),
        _error(1000.0, "m", 503, "full"),
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


def test_equal_errors_between_two_flushes_are_one_with_a_count(file):
    """It has the time of the last; another model, status or text is another error."""
    log = Log(file)
    for _ in range(1000):
        log.fail("full")
        log.now += 0.5
    log.fail("full", 504)
    log.fail("full", model=OTHER_MODEL)
    log.fail("not ready")
    log.now += 1
    log.flush()
    log.fail("full")
    assert sorted(log.newest(), key=lambda each: each["count"]) == [
        _error(1501.0, "m", 503, "full"),
        _error(1500.0, "m", 503, "not ready"),
        _error(1500.0, "other", 503, "full"),
        _error(1500.0, "m", 504, "full"),
        _error(1499.5, "m", 503, "full", 1000),
    ]


def test_many_errors_of_a_status_do_not_push_out_another_one(file):
    """An error of the model stays, whatever number of refusals follows it."""
    log = Log(file)
    log.fail("the model failed", 500)
    for second in range(200):
        log.now += 1
        for number in range(20):
            log.fail(f"full {second} {number}")
        if second % 2:
            log.flush()
    found = log.newest()
    assert len(found) == KEPT
    assert found[-1] == _error(1000.0, "m", 500, "the model failed")
    assert {each["status"] for each in found[:-1]} == {503}
    assert found[0]["text"] == "full 199 19"


def test_many_errors_of_a_model_do_not_push_out_those_of_another(file):
    """Of one with few errors all are kept, the newest of the other fill the rest."""
    log = Log(file)
    for number in range(5):
        log.now += 1
        log.fail(str(number), 500, OTHER_MODEL)
        log.flush()
    for number in range(100):
        log.now += 1
        log.fail(str(number), 500)
        log.flush()
    found = log.newest()
    names = [each["model"] for each in found]
    assert names == ["m"] * (KEPT - 5) + ["other"] * 5
    texts = [each["text"] for each in found]
    assert texts[: KEPT - 5] == [str(number) for number in range(99, 54, -1)]


def test_line_that_a_killed_process_left_unfinished_is_skipped(tmp_path):
    """The errors around it are listed."""
    log = Log(tmp_path / "errors")
    log.fail("before")
    log.flush()
    with (tmp_path / "errors").open("a") as other:
        other.write('{"t": ')
    log.fail("after")
    assert {each["text"] for each in log.newest()} == {"before", "after"}


def test_fifty_errors_are_kept(file):
    """The oldest go."""
    log = Log(file)
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
