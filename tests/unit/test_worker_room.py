"""Connections for which the system has no room left."""

import errno
import logging
import os

import pytest
from gunicorn.workers.gthread import ThreadWorker

from tests.support.clocks import standing_clock
from tests.support.in_turn import looping, post

LAST = post("/last", b"", "Connection: close")


class Accept:
    """Gunicorn's accept, which fails while `error` is set; its calls are counted."""

    def __init__(self):
        self.error = 0
        self.calls = 0
        self._accept = ThreadWorker.accept

    def of(self, worker, listener):
        self.calls += 1
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        self._accept(worker, listener)


@pytest.fixture(name="accept")
def _accept(monkeypatch):
    accept = Accept()

    def accept_of(worker, listener):
        accept.of(worker, listener)

    monkeypatch.setattr(ThreadWorker, "accept", accept_of)
    return accept


@pytest.fixture(name="clock")
def _clock(monkeypatch):
    return standing_clock(monkeypatch, "app.workers.room")


@pytest.fixture(name="loop")
def _loop(accept, clock):
    with looping() as loop:
        yield loop


def go_round(loop):
    """What Gunicorn does in each round of its loop, until nothing is to do."""
    for _ in range(10):
        if loop.worker._accepting is False:
            loop.worker.set_accept_enabled(True)
        loop.step()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS])
def test_who_finds_no_room_waits_for_one_that_leaves(loop, accept, caplog, number):
    """Nobody is accepted, and nothing spins, until a connection has been closed."""
    first = loop.connect()
    assert first.ask("/first") == (200, b"no route")
    accept.error, accept.calls = number, 0
    second = loop.connect()
    second.send(post("/second"))
    go_round(loop)
    assert accept.calls == 1
    assert first.ask("/again") == (200, b"no route")
    accept.error = 0
    go_round(loop)
    assert accept.calls == 1
    first.send(LAST)
    assert first.receive() == (200, b"no route")
    go_round(loop)
    assert second.receive() == (200, b"no route")
    (line,) = caplog.messages
    assert "no room for more than 1 connections" in line


def test_room_is_looked_for_again_after_a_second(loop, accept, clock):
    """It may be another process that has given it back."""
    accept.error = errno.ENFILE
    client = loop.connect()
    client.send(post("/x"))
    for now, calls in ((100, 1), (100.9, 1), (101, 2), (101.9, 2)):
        clock.now = now
        go_round(loop)
        assert accept.calls == calls
    accept.error = 0
    clock.now = 102
    go_round(loop)
    assert client.receive() == (200, b"no route")


def test_want_of_room_is_told_once_in_a_while(loop, accept, clock, caplog):
    """However many find none, the log has one line in a minute."""
    caplog.set_level(logging.ERROR)
    accept.error = errno.EMFILE
    loop.connect()
    for now, lines in ((100, 1), (101, 1), (159, 1), (160, 2)):
        clock.now = now
        go_round(loop)
        assert len(caplog.messages) == lines


def test_another_error_of_accepting_is_raised(loop, accept):
    """What is a fault of the program's own is not taken for want of room."""
    accept.error = errno.EINVAL
    loop.connect()
    with pytest.raises(OSError, match="Invalid argument"):
        loop.step()


def test_a_stop_without_room_ends(loop, accept):
    """Who waits in the kernel is given up where there is no room to take him in."""
    accept.error = errno.EMFILE
    loop.connect()
    loop.worker.alive = False
    loop.worker.set_accept_enabled(False)
    assert loop.worker.sockets == []
