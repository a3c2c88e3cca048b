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
from app.workers.unreader import TimelyUnreader

# A longer header is not kept, as each idle connection has one.
_KEPT_BYTES = 4 << 10
# What is of one request alone, beside what its header decides.
_OF_A_REQUEST = ("unreader", "req_number", "body", "trailers")
_OF_AN_ENVIRON = ("wsgi.input", "wsgi.early_hints")


class RepeatedRequest(Request):
    """A request that is not parsed again if its header is that of the one before."""

    header: Header | None = None

    def __init__(
        self, cfg: Any, unreader: TimelyUnreader, peer_addr: Any, req_number: int = 1
    ) -> None:
        """Take the header off the unreader, and find where the body begins."""
        sent, before = unreader.header(), unreader.peer.last_header
        if before is not None and before.sent == sent:
            unreader.read()
            vars(self).update(before.parsed)
            self.unreader, self.req_number = unreader, req_number
            self.trailers = []
            self.set_body_reader()
            self.header = before
            return
        super().__init__(cfg, unreader, peer_addr, req_number)
        parsed = {k: v for k, v in vars(self).items() if k not in _OF_A_REQUEST}
        if 0 < len(sent) <= _KEPT_BYTES and not parsed["_expected_100_continue"]:
            self.header = Header(sent, parsed)
        unreader.peer.last_header = self.header

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
        return response, {**header.environ, "wsgi.input": req.body}
    response, environ = cast("Any", wsgi.create)(
        req, conn.sock, conn.client, conn.server, cfg, response_class=response_class
    )
    if header is not None:
        kept = {
            key: value for key, value in environ.items() if key not in _OF_AN_ENVIRON
        }
        header.environ = kept
    return response, environ
