"""Calls in Gunicorn's access log."""

import logging

from gunicorn.config import Config

from app.call import Call, Peer, Reply
from app.rims.access_log import log_call
from app.rims.http_heads import HeadCache


class Broken(logging.Logger):
    """A --logger-class whose access log fails."""

    def access(self, *_):
        raise OSError("the disk is full")


def test_logger_that_fails_costs_no_reply(caplog):
    """The failure is in the error log, with its traceback."""
    log = Broken("broken")
    log.addHandler(caplog.handler)
    head, _ = HeadCache(Config()).read(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    log_call(log, Call(head, b"", Peer("", 0, "unix", 0)), Reply(b"{}"), 2)
    assert "a request could not be logged" in caplog.text
    assert "the disk is full" in caplog.text
