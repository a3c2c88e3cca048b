"""Requests whose header repeats are as Gunicorn's own, and not parsed again."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.http.errors import ParseException
from gunicorn.http.message import Request
from gunicorn.http.wsgi import Response
from hypothesis import given
from hypothesis import strategies as st

from app.workers.request import RepeatedRequest, create
from app.workers.unreader import TimelyUnreader

PEER = ("10.1.2.3", 4711)
# Of one request alone; the last is a function of the response.
OWN = {"wsgi.input", "wsgi.errors", "wsgi.early_hints", "gunicorn.socket"}
HEADERS = [
    "POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n",
    "POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n",
    "POST /predict?top=2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n",
    "POST /a%20b HTTP/1.0\r\nContent-Length: 3\r\nConnection: keep-alive\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\nContent-Length: 3\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n",
    "GET /metrics HTTP/1.1\r\nHost: b\r\nAccept: a\r\nAccept: b\r\n",
    "POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n",
    "POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 000000000003\r\n",
    "POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n",
    "POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n",
    "POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n",
    "POST /predict HTTP/1.1\r\nHost: a\r\n",
    "POST / HTTP/1.1\r\nContent-Length: 3\r\nHost: a\r\nContent-Length: 3\r\n",
    "POST / HTTP/1.1\r\nContent-Length: 3\n\nabcGET / HTTP/1.1\r\nHost: a\r\n",
    "POST / HTTP/1.1\r\nContent-Length: 3\n\nabc\r\nContent-Length: 3\r\n",
    "POST / HTTP/1.1\r\nContent-Length: 3\n\nabc\r\nContent-Length: 4\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n",
    "nonsense\r\n",
]


class Connection:
    """One end of a connection, whose requests are read one after another."""

    def __init__(self) -> None:
        self.config = Config()
        self.config.set("forwarded_allow_ips", PEER[0])
        self.client, self.server = socket.socketpair()
        self.unreader = TimelyUnreader(self.server)
        self.count = 0

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.server.close()

    def request(self, header: str, body: bytes = b"abc") -> Any:
        """The request of a header, which comes with its body in one piece."""
        self.unreader.take_buffered()
        self.client.sendall(header.encode() + b"\r\n" + body)
        assert self.unreader.has_header()
        return self.read()

    def read(self) -> Any:
        """The request that is here."""
        self.count += 1
        return RepeatedRequest(self.config, self.unreader, PEER, self.count)

    def environ(self, request: Any) -> dict[str, Any]:
        conn: Any = SimpleNamespace(
            sock=self.server, client=PEER, server=("127.0.0.1", 80)
        )
        return create(request, conn, self.config, Response)[1]


@pytest.fixture
def connection():
    with Connection() as one:
        yield one


@pytest.fixture
def parsed(monkeypatch):
    """How often Gunicorn has parsed a header."""
    times = []
    parse = Request.parse

    def note(request, unreader):
        times.append(1)
        return parse(request, unreader)

    monkeypatch.setattr(Request, "parse", note)
    return times


def all_of(request: Any) -> dict[str, Any]:
    found = {**vars(request), "body": type(request.body.reader)}
    return {
        key: found[key]
        for key in found.keys() - {"unreader", "header", "length", "cfg"}
    }


def comparable(environ: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in environ.items() if key not in OWN}


def test_a_header_is_parsed_once(connection, parsed):
    """As long as the header stays the same, only bodies are read."""
    bodies = []
    for body in (b"abc", b"def", b"ghi"):
        request = connection.request(HEADERS[0], body)
        environ = connection.environ(request)
        bodies.append(environ["wsgi.input"].read())
    assert bodies == [b"abc", b"def", b"ghi"]
    assert len(parsed) == 1


def test_another_header_is_parsed(connection, parsed):
    """One that differs in more than the body's length is not the header of before."""
    for header in (HEADERS[0], HEADERS[2], HEADERS[0]):
        assert connection.request(header).uri == header.split()[1]
    assert len(parsed) == 3


@pytest.mark.parametrize("digits", ["1", "2", "0003"])
def test_a_header_is_parsed_once_for_bodies_of_any_length(connection, parsed, digits):
    """The length is that of each request, also for the application."""
    for length in ("3", digits, "2"):
        header = f"POST / HTTP/1.1\r\nContent-Length: {length}\r\nHost: a\r\n"
        environ = connection.environ(connection.request(header))
        assert environ["CONTENT_LENGTH"] == length
        assert environ["wsgi.input"].read() == b"abc"[: int(length)]
    assert len(parsed) == 1


@given(st.lists(st.sampled_from(HEADERS), max_size=6))
def test_it_is_as_gunicorn_s_own(headers):
    """Whatever came before, a request and its environment are as if it came alone."""
    with Connection() as kept:
        for number, header in enumerate(headers, 1):
            with Connection() as alone:
                alone.count = number - 1
                try:
                    wanted = alone.request(header)
                except ParseException as error:
                    with pytest.raises(type(error)):
                        kept.request(header)
                    continue
                request = kept.request(header)
                assert all_of(request) == all_of(wanted)
                environ = kept.environ(request)
                assert comparable(environ) == comparable(alone.environ(wanted))
                assert environ["wsgi.input"] is request.body
                assert environ["gunicorn.socket"] is kept.server
                assert kept.unreader.take_buffered() == alone.unreader.take_buffered()


def test_a_body_that_looks_like_a_header_is_left_alone(connection, monkeypatch):
    """What two LFs part from a header is no part of it, where a parser allows that."""
    parse = Request.parse

    # As gunicorn_h1c does, which Gunicorn takes where it is installed.
    def lenient(request, unreader):
        header, _, rest = unreader.read().partition(b"\n\n")
        assert parse(request, SimpleNamespace(read=lambda: header + b"\r\n\r\n")) == b""
        return rest

    monkeypatch.setattr(Request, "parse", lenient)
    header = "POST / HTTP/1.1\r\nContent-Length: 3\n\nabc\r\nContent-Length: 3\r\n"
    for _ in range(2):
        environ = connection.environ(connection.request(header, b"xyz"))
        assert environ["wsgi.input"].read() == b"abc"


def test_what_an_application_adds_stays_with_its_request(connection):
    """An environment that was written to is not that of the next request."""
    for _ in range(3):
        environ = connection.environ(connection.request(HEADERS[0]))
        assert "flask.seen" not in environ
        assert environ["REQUEST_METHOD"] == "POST"
        environ["flask.seen"] = environ["REQUEST_METHOD"] = "?"


def test_a_connection_that_ends_stays_ended(connection):
    """That one request is the connection's last says nothing of one like it."""
    connection.request(HEADERS[0]).force_close()
    assert not connection.request(HEADERS[0]).should_close()


@pytest.mark.parametrize(
    "header",
    [HEADERS[0] + f"X-Long: {'x' * 4096}\r\n", HEADERS[5]],
    ids=["long", "one that wants an answer first"],
)
def test_what_is_not_kept(connection, parsed, header):
    """A long header would stay in memory, and one that expects has to be answered."""
    for _ in range(2):
        connection.environ(connection.request(header))
    assert len(parsed) == 2


def test_a_header_in_pieces_is_parsed(connection, parsed):
    """What was not all there when it was looked at goes Gunicorn's way."""
    for _ in range(2):
        connection.unreader.take_buffered()
        connection.unreader.begin_header(60)
        connection.client.sendall(HEADERS[0].encode())
        assert not connection.unreader.has_header()
        connection.client.sendall(b"\r\nabc")
        assert connection.read().uri == "/predict"
    assert len(parsed) == 2


PROXY_V2 = (
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x09\x09\x09\x09\x08\x08\x08\x08\0\x01\0\x02"
)


PROXY_V1 = b"PROXY TCP4 9.9.9.9 8.8.8.8 1 2\r\n"


@pytest.mark.parametrize(
    ("preamble", "begin"),
    [(PROXY_V2, b""), (PROXY_V1, PROXY_V1 + HEADERS[0].encode().removesuffix(b"\r\n"))],
    ids=["v2", "v1"],
)
def test_what_a_proxy_says_is_of_one_request(preamble, begin):
    """A later request that begins as the proxy's words did is no repetition."""
    with Connection() as connection:
        connection.config.set("proxy_protocol", "auto")
        connection.config.set("proxy_allow_ips", PEER[0])
        connection.client.sendall(preamble + HEADERS[0].encode() + b"\r\nabc")
        assert connection.unreader.has_header()
        first = connection.read()
        assert first.proxy_protocol_info["client_addr"] == "9.9.9.9"
        connection.unreader.take_buffered()
        connection.client.sendall(begin + b"\r\n\r\nabc")
        assert connection.unreader.has_header()
        with pytest.raises(ParseException):
            connection.read()
