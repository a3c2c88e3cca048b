"""What is logged of a version: whose it is, and how much."""

import pytest

from app.batching.model_log import ModelLog
from tests.support.jobs import FakeTime


@pytest.mark.parametrize("name", ["shop", "100%s"])
def test_each_line_says_whose_it_is(caplog, name):
    """A line begins with the model and its version, whatever the name."""
    ModelLog(name, 2).warning("is %d%% full", 7)
    ModelLog(name, 2).warning("computes again")
    assert [record.getMessage() for record in caplog.records] == [
        f"model {name} version 2: is 7% full",
        f"model {name} version 2: computes again",
    ]


def test_one_error_a_minute_has_its_traceback(caplog):
    """All errors have their line, and no model takes another's tracebacks away."""
    fake = FakeTime()
    logs = [ModelLog(name, 1, fake.clock) for name in ("shop", "other")]
    for seconds in (0, 1, 58, 1):
        fake.now += seconds
        for log in logs:
            log.error("a batch failed", exc_info=ValueError("secret"))
    assert len(caplog.records) == 8
    had = [bool(record.exc_info) for record in caplog.records]
    assert had == [True] * 2 + [False] * 4 + [True] * 2


def test_a_line_without_an_error_takes_no_traceback_away(caplog):
    """An error whose cause is not known has no traceback, and the next one has."""
    log = ModelLog("shop", 1)
    log.error("a batch failed", exc_info=None)
    log.error("a batch failed", exc_info=ValueError("secret"))
    assert [bool(record.exc_info) for record in caplog.records] == [False, True]
