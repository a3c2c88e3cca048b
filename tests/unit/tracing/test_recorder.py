"""The thread that makes spans."""

import threading

from app.background import BackgroundLimits
from app.tracing.recorder import SpanRecorder


def test_close_calls_what_still_waits():
    """What was recorded before `close` is called, in its order."""
    made = []
    recording = SpanRecorder()
    for number in range(5):
        recording.record(lambda number=number: made.append(number))
    recording.close()
    assert made == [0, 1, 2, 3, 4]


def test_an_exception_does_not_end_the_thread(caplog):
    """It is logged, and the next function is called."""
    made = []
    recording = SpanRecorder()
    recording.record(lambda: 1 / 0)
    recording.record(lambda: made.append(1))
    recording.close()
    assert made == [1]
    assert "a span could not be made" in caplog.text


def test_spans_beyond_the_bound_are_dropped_and_logged(caplog):
    """With one in the making and two that wait, three more are dropped and counted."""
    began, go_on, made = threading.Event(), threading.Event(), []

    def block():
        began.set()
        go_on.wait(20)

    recording = SpanRecorder(BackgroundLimits(0.0, 1, 1, 3, 1))
    recording.record(block)
    assert began.wait(20)
    for number in range(5):
        recording.record(lambda number=number: made.append(number))
    go_on.set()
    recording.close()
    assert made == [0, 1]
    assert "3 requests or batches were too many to trace" in caplog.text
