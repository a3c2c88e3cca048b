"""A thread that writes what others hand over, within bounds."""

import threading

from app.background import Background, BackgroundLimits
from testing.server import wait_until

WITHIN_S = 10
# Nothing is due before it is full.
NEVER_S = 3600.0


class Writer:
    """Keeps what is written, and waits for `go` in each write."""

    def __init__(self):
        self.written = []
        self.began, self.go = threading.Event(), threading.Event()

    def __call__(self, items):
        self.began.set()
        assert self.go.wait(WITHIN_S)
        self.written.append(list(items))


def test_items_are_written_together_once_there_are_enough():
    """Three items are one write, in their order."""
    writer = Writer()
    writer.go.set()
    background = Background("test", writer, BackgroundLimits(NEVER_S, 3, 100, 10, 100))
    assert all(background.offer(item) for item in "abc")
    wait_until(lambda: writer.written, WITHIN_S)
    assert writer.written == [["a", "b", "c"]]


def test_items_are_written_once_they_have_enough_bytes():
    """One item of so many bytes is written at once."""
    writer = Writer()
    writer.go.set()
    background = Background("test", writer, BackgroundLimits(NEVER_S, 9, 50, 10, 100))
    assert background.offer("a", 50)
    wait_until(lambda: writer.written == [["a"]], WITHIN_S)


def test_few_items_are_written_after_a_while():
    """The first item does not wait for others for ever."""
    writer = Writer()
    writer.go.set()
    background = Background("test", writer, BackgroundLimits(0.01, 9, 100, 10, 100))
    assert background.offer("a")
    wait_until(lambda: writer.written == [["a"]], WITHIN_S)


def test_items_are_refused_while_a_write_hangs():
    """Those that are being written count, so that memory is bounded."""
    writer = Writer()
    background = Background("test", writer, BackgroundLimits(NEVER_S, 1, 100, 2, 100))
    assert background.offer("a")
    assert writer.began.wait(WITHIN_S)
    assert background.offer("b")
    assert not background.offer("c")
    writer.go.set()
    wait_until(lambda: writer.written == [["a"], ["b"]], WITHIN_S)
    wait_until(lambda: background.offer("d"), WITHIN_S)


def test_bytes_are_bounded():
    """An item that would exceed the bytes in memory is refused, a smaller one taken."""
    background = Background("test", Writer(), BackgroundLimits(NEVER_S, 9, 999, 9, 100))
    assert background.offer("a", 60)
    assert not background.offer("b", 41)
    assert background.offer("c", 40)


def test_close_writes_what_waits_and_refuses_more():
    """It may be called twice, and without any item."""
    writer = Writer()
    writer.go.set()
    background = Background("test", writer, BackgroundLimits(NEVER_S, 9, 100, 9, 100))
    assert background.offer("a")
    for _ in range(2):
        background.close(WITHIN_S)
    assert writer.written == [["a"]]
    assert not background.offer("b")
    Background("test", writer, BackgroundLimits(NEVER_S, 9, 100, 9, 100)).close(
        WITHIN_S
    )
