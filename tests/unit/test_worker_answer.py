"""What Gunicorn's threaded worker sends, piece by piece."""

from types import SimpleNamespace

import pytest
from gunicorn.config import Config
from gunicorn.http.body import Body

from app.coroutines import completed
from app.workers.answer import WholeResponse, answer
from app.workers.body import BoundedChunks, DirectBody


class Wire:
    """A connection that keeps what is sent on it, call by call."""

    def __init__(self):
        self.sent = []

    def sendall(self, data):
        self.sent.append(bytes(data))


def response(wire, headers, method="POST", version=(1, 1), body=None):
    """A response to such a request, started."""
    request = SimpleNamespace(
        method=method, version=version, should_close=lambda: False, body=body
    )
    made = WholeResponse(request, wire, Config())
    made.start_response("200 OK", headers)
    return made


def test_a_small_answer_is_sent_at_once():
    """Header and body go in one call."""
    wire = Wire()
    made = response(wire, [("Content-Length", "2"), ("X-Batch-Size", "7")])
    made.write(b"{}")
    made.close()
    (sent,) = wire.sent
    head, body = sent.split(b"\r\n\r\n")
    assert body == b"{}"
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nContent-Length: 2\r\nX-Batch-Size: 7" in head


def test_an_answer_claims_no_later_http():
    """A client that speaks HTTP/1.9 is answered in HTTP/1.1."""
    lines = response(Wire(), [], version=(1, 9)).default_headers()
    assert lines[0] == "HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("version", [(1, 0), (1, 1)])
@pytest.mark.parametrize("headers", [[], [("Content-Length", "2")]])
@pytest.mark.parametrize("closes", [True, False])
def test_a_header_begins_as_gunicorns(version, headers, closes, monkeypatch):
    """The status, who serves, the date, and what becomes of the connection."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("time.time", lambda: clock.now)
    made = response(Wire(), headers, version=version)
    if closes:
        made.force_close()
    for clock.now in (1e9, 1e9 + 0.9, 1e9 + 1, 1e9 + 70):
        lines = made.default_headers()
        assert lines == super(WholeResponse, made).default_headers()
    assert "Date: Sun, 09 Sep 2001 01:47:50 GMT\r\n" in lines


@pytest.mark.parametrize("method", ["POST", "HEAD"])
def test_an_answer_without_a_body_is_its_header(method):
    """A header goes out although no body follows."""
    wire = Wire()
    made = response(wire, [("Content-Length", "0")], method)
    made.write(b"")
    made.close()
    assert b"".join(wire.sent).endswith(b"\r\n\r\n")
    assert len(wire.sent) == 1


def test_an_answer_of_unknown_length_goes_in_chunks():
    """Each piece is a chunk, and an empty one the end."""
    wire = Wire()
    made = response(wire, [])
    made.write(b"abc")
    made.write(b"de")
    made.close()
    body = b"".join(wire.sent).partition(b"\r\n\r\n")[2]
    assert body == b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("left", "says"), [(65_535, b"keep-alive"), (65_536, b"close")]
)
def test_an_answer_says_that_a_large_body_was_not_read(left, says):
    """A body too large to be thrown away ends the connection, as the header says."""
    wire = Wire()
    body = DirectBody(None, left, lambda: None)
    made = response(wire, [("Content-Length", "0")], body=body)
    made.close()
    assert b"\r\nConnection: %s\r\n" % says in wire.sent[0]
    assert made.should_close() is (says == b"close")


@pytest.mark.parametrize(("parser", "says"), [(None, b"keep-alive"), (..., b"close")])
def test_an_answer_says_that_a_body_in_chunks_was_not_read(parser, says):
    """Unless all chunks have been read, the connection ends, as the header says."""
    wire = Wire()
    chunks = BoundedChunks(SimpleNamespace(), None)
    chunks.parser = parser
    made = response(wire, [("Content-Length", "0")], body=Body(chunks))
    made.close()
    assert b"\r\nConnection: %s\r\n" % says in wire.sent[0]
    assert made.should_close() is (says == b"close")


class Log:
    """Gunicorn's log."""

    def __init__(self):
        self.lines = []

    def access(self, *_):
        self.lines.append("access")

    def debug(self, *_):
        pass

    def info(self, text):
        self.lines.append(text)

    def exception(self, text):
        self.lines.append(text)


def worker(application, **settings):
    """As much of a worker as a request meets."""
    config = Config()
    for name, value in settings.items():
        config.set(name, value)
    return SimpleNamespace(
        cfg=config,
        wsgi=application,
        log=Log(),
        alive=True,
        nr=0,
        max_requests=3,
        nr_conns=1,
        max_keepalived=1,
    )


def ask(one):
    """Have the worker answer a request: is the connection kept, and what was sent."""
    request = SimpleNamespace(
        method="POST",
        version=(1, 1),
        headers=[("HOST", "here")],
        scheme="http",
        path="/predict",
        query="",
        fragment="",
        uri="/predict",
        body=None,
        proxy_protocol_info=None,
        should_close=lambda: False,
        _expected_100_continue=False,
    )
    wire = Wire()
    conn = SimpleNamespace(sock=wire, client=("1.2.3.4", 5), server=("6.7.8.9", 80))

    async def respond(environ, start_response):
        return one.wsgi(environ, start_response)

    kept = completed(answer(one, request, conn, respond, wire))
    return kept, b"".join(wire.sent)


def well(environ, start_response):
    """An application that answers."""
    assert environ["PATH_INFO"] == "/predict"
    start_response("200 OK", [("Content-Length", "2")])
    return [b"{}"]


def test_an_answer_keeps_the_connection():
    """An answer of known length leaves the connection for the next request."""
    one = worker(well)
    kept, sent = ask(one)
    assert kept is True
    assert b"Connection: keep-alive" in sent
    assert one.log.lines == ["access"]


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        ({"keepalive": 0}, {}),
        ({}, {"alive": False}),
        ({}, {"nr_conns": 2}),
        ({}, {"nr": 2}),
    ],
    ids=["no keep-alive", "stopping", "too many", "recycled"],
)
def test_the_connection_is_closed_where_gunicorn_says_so(settings, state):
    """Without keep-alive, or room for it, or when the worker ends, it is told so."""
    one = worker(well, **settings)
    vars(one).update(state)
    kept, sent = ask(one)
    assert kept is False
    assert b"Connection: close" in sent
    assert one.alive == (not ({"alive", "nr"} & set(state)))


def test_an_application_that_raises_sends_nothing():
    """What is raised before the answer is the worker's to tell."""

    def broken(*_):
        raise KeyError("x")

    with pytest.raises(KeyError):
        ask(worker(broken))


def test_the_hooks_of_the_configuration_are_called():
    """pre_request and post_request see each request; one that raises hurts nobody."""
    seen = []

    def after(worker, req, environ, resp):
        seen.append(resp.status)
        raise ValueError("a hook's own fault")

    one = worker(
        well, pre_request=lambda worker, req: seen.append(req.path), post_request=after
    )
    assert ask(one)[0] is True
    assert seen == ["/predict", "200 OK"]
    assert "Exception in post_request hook" in one.log.lines
