"""A request whose connection knows the one before it.

Most clients repeat their header, and a peer stays who it is. Gunicorn takes a header
apart for each request, makes the application's environment of it, and finds out
whether to trust the peer, which together take as long as to predict a small row.
"""

from typing import Any, cast

from gunicorn.http import wsgi
from gunicorn.http.message import Request
from gunicorn.workers.gthread import TConn

from app.workers.peer import Header
from app.workers.unreader import PLAIN_LENGTH, TimelyUnreader, has_plain_lines

# A longer header is not kept, as each idle connection has one.
_KEPT_BYTES = 4 << 10
# What is of one request alone, beside what its header decides.
_OF_A_REQUEST = ("unreader", "req_number", "body", "trailers")
_OF_AN_ENVIRON = ("wsgi.input", "wsgi.early_hints")
_LENGTH_NAME = "CONTENT-LENGTH"


class RepeatedRequest(Request):
    """A request that is not parsed again if its header is that of the one before.

    But for the length of its body, which of JSON is another nearly each time.
    """

    header: Header | None = None
    # The digits of its Content-Length, where it repeats a header but for these.
    length = ""

    def __init__(
        self, cfg: Any, unreader: TimelyUnreader, peer_addr: Any, req_number: int = 1
    ) -> None:
        """Take the header off the unreader, and find where the body begins."""
        sent, before = unreader.header(), unreader.peer.last_header
        length = None if before is None else before.length_in(sent)
        if before is not None and length is not None:
            unreader.read()
            self._repeat(before, length.decode())
            self.unreader, self.req_number = unreader, req_number
            self.set_body_reader()
            return
        super().__init__(cfg, unreader, peer_addr, req_number)
        self.header = unreader.peer.last_header = self._kept(sent)

    def _repeat(self, before: Header, length: str) -> None:
        vars(self).update(before.parsed)
        self.header, self.trailers = before, []
        if before.length_at is not None:
            self.length = length
            self.headers = self.headers.copy()
            self.headers[before.length_at] = (_LENGTH_NAME, length)

    def _kept(self, sent: bytes) -> Header | None:
        if not 0 < len(sent) <= _KEPT_BYTES or not has_plain_lines(sent):
            return None
        parsed = {k: v for k, v in vars(self).items() if k not in _OF_A_REQUEST}
        if parsed["_expected_100_continue"] or parsed["proxy_protocol_info"]:
            # What a proxy says stands before the header, once; of its binary form
            # the first four bytes look like all of one.
            return None
        found = PLAIN_LENGTH.search(sent)
        entry = (_LENGTH_NAME, found[1].decode()) if found else None
        if found is None or entry not in self.headers:
            return Header(sent, b"", None, parsed)
        begin, end = found.span(1)
        return Header(sent[:begin], sent[end:], self.headers.index(entry), parsed)

    def _peer_is_trusted_proxy(self) -> bool:
        peer = cast("TimelyUnreader", self.unreader).peer
        if peer.is_trusted is None:
            peer.is_trusted = super()._peer_is_trusted_proxy()  # type: ignore[misc]
        return bool(peer.is_trusted)


def create(
    req: Any, conn: TConn, cfg: Any, response_class: type[wsgi.Response]
) -> tuple[Any, dict[str, Any]]:
    """The request's response and environment, as Gunicorn's `create` makes them."""
    header = getattr(req, "header", None)
    if header is not None and header.environ:
        response = cast("Any", response_class)(req, conn.sock, cfg)
        environ = {**header.environ, "wsgi.input": req.body}
        if req.length:
            environ["CONTENT_LENGTH"] = req.length
        return response, environ
    response, environ = cast("Any", wsgi.create)(
        req, conn.sock, conn.client, conn.server, cfg, response_class=response_class
    )
    if header is not None:
        kept = {
            key: value for key, value in environ.items() if key not in _OF_AN_ENVIRON
        }
        header.environ = kept
    return response, environ
