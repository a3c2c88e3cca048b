"""Request smuggling: nginx and the server behind it see the same requests."""

import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest

from testing.nginx import NGINX, proxy
from testing.server import wait_until
from tests.support.front import Front, Wire, chunked, front, get, post, request

pytestmark = pytest.mark.skipif(
    NGINX is None, reason="Debian's package nginx is not installed"
)
HIDDEN = get("/hidden", "X: y")
END = b"\r\n\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: front\r\n"
LAST_CHUNK = b"0" + END
LENGTH = b"Content-Length: %d\r\n" % len(LAST_CHUNK + HIDDEN)
SHORT = b"Content-Length: 4\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
# The body as a proxy that goes by the length sees it, and as one that goes by chunks.
CL_TE = LAST_CHUNK + HIDDEN
TE_CL = b"%x\r\n" % len(HIDDEN) + HIDDEN + b"\r\n" + LAST_CHUNK
CODINGS = (
    *(b"Transfer-Encoding : chunked", b"Transfer-Encoding\t: chunked"),
    *(b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunkedx"),
    *(b"Transfer-Encoding: chunked, identity", b"Transfer-Encoding: identity, chunked"),
    *(b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked, chunked"),
    *(b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding: \x0cchunked"),
    *(b"Transfer-Encoding: chunked\x0b", b"Transfer-Encoding:\tchunked\t"),
    *(b"Transfer-Encoding:\r\n chunked", b"Transfer-Encoding: x\r\n\tchunked"),
    *(b'Transfer-Encoding: "chunked"', b"Transfer-Encoding: chunked;x"),
    *(b"Transfer-Encoding:chunked", b"transfer-encoding: CHUNKED"),
    *(b"Transfer_Encoding: chunked", b"Transfer-Encoding: \xffchunked"),
    *(b"X: y\nTransfer-Encoding: chunked", b"X: y\rTransfer-Encoding: chunked"),
    b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    b"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
    b"Connection: Content-Length\r\nTransfer-Encoding: chunked",
    b"\0Transfer-Encoding: chunked",
    b" Transfer-Encoding: chunked",
)
LENGTHS = (
    *(b"Content-Length: +%d", b"Content-Length: %d, %d", b"Content-Length: 0%d"),
    *(b"Content-Length : %d", b"Content_Length: %d", b"Content-Length: %d\x0b"),
    *(b"Content-Length: 0\r\nContent-Length: %d", b"X: y\nContent-Length: %d"),
    *(b"Content-Length: %d\r\nContent-Length: 0", b"X: y\rContent-Length: %d"),
    *(b"Content-Length:\r\n %d", b"Content-Length: \t%d\t", b"Content-Length: 0x%d"),
)
CHUNKS = (
    *(
        b"4;a\nb\r\nbody\r\n",
        b"4;a=\nbody\r\n",
        b'4;a="\n"\r\nbody\r\n',
        b"4\nbody\r\n",
    ),
    *(
        b"4;\nx\r\nbody\r\n",
        b"4 \r\nbody\r\n",
        b"4\r\nbody\n",
        b"4\r\nbodyxx",
        b"04\r\n",
    ),
    *(b"4\rXbody\r\n", b"0x4\r\nbody\r\n", b"+4\r\nbody\r\n", b"-4\r\nbody\r\n"),
    *(b"10000000000000004\r\nbody\r\n", b"4_0\r\nbody\r\n", b"4\0\r\nbody\r\n"),
    *(b"0\n\r\n", b"0\r\n\n", b"0\r\nA: b\n\r\n", b"0\r\nA: b\n\n", b"0;a\n\r\n"),
    *(b"0\r\nContent-Length: 100" + END, b"0\r\nTransfer-Encoding: x" + END),
)
ATTACKS = {
    "CL.TE": [POST + LENGTH + CHUNKED + b"\r\n" + CL_TE],
    "TE.CL": [POST + CHUNKED + SHORT + b"\r\n" + TE_CL],
    "CL.TE, obfuscated": [POST + LENGTH + te + END + CL_TE for te in CODINGS],
    "TE.CL, obfuscated": [
        POST + te + b"\r\n" + SHORT + b"\r\n" + TE_CL for te in CODINGS
    ],
    "TE, obfuscated": [POST + te + END + TE_CL for te in CODINGS],
    "HTTP/1.0": [POST.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n" + TE_CL],
    "CL.CL": [
        POST + line.replace(b"%d", b"%d" % len(HIDDEN)) + END + HIDDEN
        for line in LENGTHS
    ],
    "chunks": [POST + CHUNKED + b"\r\n" + part + CL_TE for part in CHUNKS],
    "bare LF": [
        POST[:-1].replace(b"\r\n", b"\n") + b"\n\n" + HIDDEN,
        POST + b"X: y\n\n" + HIDDEN,
        POST + b"X: y\n\r\n" + HIDDEN,
        POST + b"X: y\r\r\n" + HIDDEN,
        POST.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\n") + SHORT + b"\r\nbody",
        b"\n" + get("/echo"),
        b"GET /echo HTTP/1.1\nHost: front\n\n",
    ],
    "body of a GET": [
        request("GET", "/echo", f"Content-Length: {len(HIDDEN)}") + HIDDEN,
        request("GET", "/echo", "Transfer-Encoding: chunked") + TE_CL,
    ],
    "unread body": [
        post("/refuse", HIDDEN),
        post("/refuse", HIDDEN, "Expect: 100-continue"),
        post("/refuse", HIDDEN * 2000),
        chunked("/refuse", HIDDEN, HIDDEN),
        post("/unknown", HIDDEN),
    ],
    "upgrade": [
        post("/echo", HIDDEN, "Connection: Upgrade", "Upgrade: h2c"),
        chunked("/echo", HIDDEN, headers=["Connection: upgrade", "Upgrade: websocket"]),
    ],
    "request line": [
        b"GET  /echo HTTP/1.1\r\nHost: front" + END,
        b"GET /echo HTTP/1.1 HTTP/1.1\r\nHost: front" + END,
        b"GET /echo\tHTTP/1.1\r\nHost: front" + END,
        b"GET /echo%0d%0aX:%20y HTTP/1.1\r\nHost: front" + END,
        b"GET /echo%20HTTP/1.1%0d%0aHost:%20x HTTP/1.1\r\nHost: front" + END,
        b"GET http://front/echo HTTP/1.1\r\nHost: other" + END,
    ],
}
CONTINUE = 100
_numbers = itertools.count()


@pytest.fixture(name="server", scope="module")
def _server():
    with front("--access-logfile=-", "--access-logformat=seen %(r)s") as server:
        # The request that waited for the start.
        wait_until(lambda: "seen GET /calls" in server.log.read_text(), 60)
        yield server


@dataclass
class Chain:
    """The server, and nginx in front of it."""

    server: Front
    address: tuple[str, int]
    log: Path
    seen_before: int

    def seen(self) -> list[list[str]]:
        """Return method and target of the requests that the server has answered."""
        lines = self.server.log.read_text().splitlines()
        found = [each.split()[1:3] for each in lines if each.startswith("seen ")]
        return found[self.seen_before :]

    def nginx_lines(self) -> list[list[str]]:
        """Return what nginx says of each request: the server's status, and its line."""
        return [each.split() for each in self.log.read_text().splitlines()]

    def forwarded(self) -> list[list[str]]:
        """Return method and target of the requests that nginx has forwarded."""
        # The server's log has no scheme and no host.
        return [
            [each.removeprefix("http://front") for each in words[1:3]]
            for words in self.nginx_lines()
            if words[0] != "-"
        ]

    def wait_for(self, attack: bytes, count: int) -> None:
        """Wait until nginx has written so many lines, and both agree on the requests.

        nginx writes a line once it has closed the connection.
        """
        wait_until(
            lambda: (
                len(self.nginx_lines()) == count and self.seen() == self.forwarded()
            ),
            10,
            lambda: f"{attack}: {self.seen()[-4:]} {count} {self.nginx_lines()[-4:]}",
        )

    def connect(self, sent: bytes) -> Wire:
        return self.server.connect(sent, address=self.address)


@pytest.fixture(name="chain", scope="module", params=["on", "off"])
def _chain(request, server, tmp_path_factory):
    """Run nginx with and without request buffering."""
    folder = tmp_path_factory.mktemp("nginx")
    line = "proxy_request_buffering {};"
    replacing = {line.format("on"): line.format(request.param)}
    chain = Chain(server, ("127.0.0.1", 0), folder / "access.log", 0)
    chain.seen_before = len(chain.seen())
    with proxy(folder, server.port, replacing=replacing) as nginx:
        chain.address = ("127.0.0.1", nginx.port)
        # nginx may write the line of the request that waited for it only now.
        wait_until(lambda: chain.seen() and chain.seen() == chain.forwarded(), 10)
        yield chain


@pytest.mark.parametrize("kind", ATTACKS)
def test_server_answers_just_the_requests_that_nginx_forwards(chain, kind):
    """None is hidden in a body, and the next client gets the answer to its own."""
    for attack in ATTACKS[kind]:
        count = len(chain.nginx_lines())
        wire = chain.connect(attack + get("/echo", "Connection: close"))
        answers = [each for each in wire.all_responses() if each.status != CONTINUE]
        wire.close()
        count += len(answers)
        chain.wait_for(attack, count)
        for _ in range(3):
            number = f"number={next(_numbers)}"
            victim = chain.connect(get(f"/show?{number}"))
            assert victim.response().json()["query"] == number
            victim.close()
        chain.wait_for(attack, count + 3)
