"""ModelLog: the model's name in each line, and one traceback a minute."""

import pytest

from app.batching.model_log import ModelLog
from tests.support.jobs import FakeTime


@pytest.mark.parametrize("name", ["shop", "100%s"])
def test_log_lines_begin_with_model_and_version(caplog, name):
    """A line begins with the model and its version, whatever the name."""
    ModelLog(name, 2).warning("is %d%% full", 7)
    ModelLog(name, 2).warning("computes again")
    assert [record.getMessage() for record in caplog.records] == [
        f"model {name} version 2: is 7% full",
        f"model {name} version 2: computes again",
    ]


def test_log_has_one_traceback_a_minute_for_each_model(caplog):
    """All errors have their line; each model has its own traceback a minute."""
    fake = FakeTime()
    logs = [ModelLog(name, 1, fake.clock) for name in ("shop", "other")]
    for seconds in (0, 1, 58, 1):
        fake.now += seconds
        for log in logs:
            log.error("a batch failed", exc_info=ValueError("secret"))
    assert len(caplog.records) == 8
    had = [bool(record.exc_info) for record in caplog.records]
    assert had == [True] * 2 + [False] * 4 + [True] * 2
    texts = [
        record.getMessage().rpartition("a batch failed")[2] for record in caplog.records
    ]
    assert texts == [""] * 2 + [": secret"] * 4 + [""] * 2


def test_reason_without_a_traceback_is_one_short_line(caplog):
    """Whatever the text of an error holds, it is no format and no second line."""
    log = ModelLog("shop", 1)
    for text in ("first", "100% of\n/all", "x" * 300, ""):
        log.error("a batch of %d failed", 7, exc_info=ValueError(text))
    assert [record.getMessage() for record in caplog.records][1:] == [
        "model shop version 1: a batch of 7 failed: 100% of",
        f"model shop version 1: a batch of 7 failed: {'x' * 200}",
        "model shop version 1: a batch of 7 failed",
    ]


def test_log_line_without_an_exception_uses_no_traceback(caplog):
    """An error without an exception leaves the minute's traceback to the next one."""
    log = ModelLog("shop", 1)
    log.error("a batch failed", exc_info=None)
    log.error("a batch failed", exc_info=ValueError("secret"))
    assert [bool(record.exc_info) for record in caplog.records] == [False, True]
