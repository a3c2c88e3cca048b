"""Threads that no slow or broken client can keep, without a server around them."""

import json
import logging
import socket
import ssl
from types import SimpleNamespace

import pytest
from gunicorn.config import Config
from gunicorn.http import errors
from gunicorn.workers.gthread import ThreadWorker

from app.workers.patient import DEFER, PatientThreadWorker
from app.workers.request import RepeatedRequest
from app.workers.unreader import TimelyUnreader


@pytest.fixture
def worker():
    """A worker that has started nothing."""
    worker = object.__new__(PatientThreadWorker)
    worker.log = logging.getLogger("test")
    worker.alive = True
    return worker


def answer_to(worker, error):
    """Status, headers and JSON of what a client hears of an error."""
    client, server = socket.socketpair()
    with client:
        with server:
            worker.handle_error(None, server, ("127.0.0.1", 1), error)
        head, _, body = client.makefile("rb").read().partition(b"\r\n\r\n")
    line, *headers = head.decode().split("\r\n")
    return int(line.split()[1]), dict(h.split(": ") for h in headers), json.loads(body)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidRequestLine("GET"), 400),
        (errors.InvalidHeaderName("a b"), 400),
        (errors.LimitRequestLine(9000, 4094), 414),
        (errors.LimitRequestHeaders("limit request headers fields"), 431),
        (errors.ExpectationFailed("x"), 417),
        (errors.UnsupportedTransferCoding("x"), 501),
        (errors.ForbiddenProxyRequest("h"), 403),
        (ssl.SSLError("no TLS"), 400),
    ],
)
def test_what_is_no_http_is_answered_with_json(worker, error, status):
    """Each of Gunicorn's own errors has its status, a JSON body, and the end."""
    given, headers, body = answer_to(worker, error)
    assert given == status
    assert headers["Content-Type"] == "application/json"
    assert headers["Connection"] == "close"
    assert body == {"error": str(error)}


def test_a_clients_text_is_shortened(worker):
    """Of a long line the error repeats the beginning."""
    body = answer_to(worker, errors.InvalidRequestLine("x" * 5000))[2]
    assert len(body["error"]) == 200


def test_a_bug_says_nothing_of_itself(worker, caplog):
    """Any other exception is a 500 that the log explains and the answer does not."""
    status, _, body = answer_to(worker, KeyError("/secret/path"))
    assert status == 500
    assert body == {"error": "internal error; the server's log has more"}
    assert "/secret/path" in caplog.text


def conn(**unreader):
    """A connection whose reader says these things."""
    made = SimpleNamespace(begin_header=lambda timeout_s: None, **unreader)
    config = SimpleNamespace(is_ssl=False)
    return SimpleNamespace(cfg=config, initialized=True, unreader=made)


@pytest.fixture(name="handed_on")
def _handed_on(monkeypatch):
    """The connections that come through to Gunicorn's own worker."""
    handed_on = []
    monkeypatch.setattr("app.workers.patient.unreader_of", lambda conn: conn.unreader)
    monkeypatch.setattr(
        ThreadWorker, "handle", lambda _, conn: handed_on.append(conn) or True
    )
    return handed_on


@pytest.mark.parametrize(
    ("age_s", "result"), [(0.0, DEFER), (29.0, DEFER), (31.0, False)]
)
def test_an_unfinished_header_waits_without_a_thread(worker, handed_on, age_s, result):
    """The connection goes back to the main loop, and is closed when it is too old."""
    waiting = conn(
        has_header=lambda: False, has_more=lambda: True, header_age_s=lambda: age_s
    )
    assert worker.handle(waiting) is result
    assert handed_on == []


def test_a_connection_without_a_byte_is_idle(worker, handed_on):
    """Nothing has begun on it: it waits for as long as one between two requests."""
    assert worker.handle(conn(has_header=lambda: False, has_more=lambda: False)) is True
    assert handed_on == []


def test_a_whole_header_is_handed_on(worker, handed_on):
    """What can be answered is."""
    ready = conn(has_header=lambda: True)
    assert worker.handle(ready) is True
    assert handed_on == [ready]


def test_a_stopping_worker_waits_for_a_header(worker, handed_on):
    """It has no more time to come back to a connection later."""
    worker.alive = False
    assert worker.handle(conn(has_header=None)) is True
    assert len(handed_on) == 1


@pytest.mark.parametrize(("peer", "scheme"), [("10.1.2.3", "https"), ("10.9", "http")])
def test_a_peer_is_believed_for_all_of_its_connection(peer, scheme, monkeypatch):
    """Who may say that the client speaks TLS is looked up for its first request."""
    config = Config()
    config.set("forwarded_allow_ips", "10.1.2.3")
    client, server = socket.socketpair()
    with client, server:
        unreader = TimelyUnreader(server)
        for _ in range(2):
            unreader.unread(b"GET / HTTP/1.1\r\nX-Forwarded-Proto: https\r\n\r\n")
            assert RepeatedRequest(config, unreader, (peer, 1)).scheme == scheme
            monkeypatch.setattr(
                RepeatedRequest.__base__, "_peer_is_trusted_proxy", None
            )
