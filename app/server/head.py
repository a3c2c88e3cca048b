"""The head of an HTTP/1.1 request, parsed by httptools and checked against limits.

httptools (llhttp) refuses bare LF, obs-fold, both lengths, unequal or repeated lengths
and control characters by itself. It has no limit on sizes, takes HTTP/0.9 and 2.0, and
takes codings other than chunked: these are refused here, and in app/server/target.py
what it accepts in a request line.
"""

from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

import httptools

from app.server import target

# Limit on a whole head: the request line and all fields.
MAX_HEAD_BYTES = 64 << 10
END = b"\r\n\r\n"
# Bytes that may begin an END.
OVERLAP = len(END) - 1
# Leading zeros included. httptools bounds the number, but int() its digits.
_MAX_LENGTH_DIGITS = 100
# Characters of a client's text that an error repeats.
_MAX_SHOWN = 200


class Malformed(Exception):
    """A request that HTTP/1.1 does not allow, or that a limit refuses.

    `status` is the HTTP status of the answer, after which the connection closes.
    """

    def __init__(self, text: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        """Store the text, shortened, and the status."""
        super().__init__(text[:_MAX_SHOWN])
        self.status = status.value


class Limits(NamedTuple):
    """Gunicorn's limit_request_line, limit_request_fields, limit_request_field_size.

    In bytes, number and bytes; 0 is no limit, as there.
    """

    line_bytes: int
    fields: int
    field_bytes: int


class Head:
    """One request's head, fed in pieces of any size.

    `headers` are (name in lower case, value) in bytes. `path` is decoded, `raw_path` is
    not, and neither has the `query`. `content_length` is None for a body in chunks. All
    but `feed` is valid, and never changes, once `complete` is true.
    """

    __slots__ = (
        "_bytes",
        "_fields",
        "_limits",
        "_line",
        "_parser",
        "_tail",
        "complete",
        "content_length",
        "expects_continue",
        "headers",
        "keep_alive",
        "method",
        "path",
        "query",
        "raw_path",
        "target",
        "version",
    )

    def __init__(self, limits: Limits) -> None:
        """Start the parser."""
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self._bytes = self._fields = 0
        self._line = self._tail = b""
        self.complete = False
        self.headers: list[tuple[bytes, bytes]] = []
        self.target = self.raw_path = self.query = b""
        self.method = self.version = self.path = ""
        self.content_length: int | None = 0
        self.keep_alive = True
        self.expects_continue = False

    def feed(self, data: bytes) -> bytes:
        """Parse up to the end of the head; return the bytes behind it.

        Raises:
            Malformed: the head is refused.
        """
        if not self._tail and (self._line or data.startswith(b"\r")):
            data = self._after_empty_lines(data)
        end = (self._tail + data).find(END)
        stop = len(data) if end < 0 else end + len(END) - len(self._tail)
        piece, data = data[:stop], data[stop:]
        self._tail = (self._tail + piece)[-OVERLAP:]
        self._bytes += len(piece)
        if not self._line.endswith(b"\n"):
            self._line += piece[: piece.find(b"\n") + 1 or None]
        self._parse(piece)
        if self._bytes > MAX_HEAD_BYTES:
            raise Malformed(
                f"the request's head is larger than {MAX_HEAD_BYTES} bytes",
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            )
        if self.complete:
            self._check()
        elif data:
            raise Malformed("malformed HTTP request: it begins with a bare CR or LF")
        return data

    def _after_empty_lines(self, data: bytes) -> bytes:
        """Return the data behind empty lines; keep a CR that may begin one."""
        data = self._line + data
        size = target.empty_lines(data)
        self._bytes += size
        self._line = data[size:] if data[size:] == b"\r" else b""
        return data[size + len(self._line) :]

    def started(self) -> bool:
        """Return whether anything but empty lines has arrived."""
        return bool(self._tail)

    def on_url(self, part: bytes) -> None:
        """Take a part of the request's target from the parser."""
        self.target += part
        limit = self._limits.line_bytes
        if limit and len(self.target) > limit:
            raise Malformed(
                f"Request Line is too large: more than {limit} bytes",
                HTTPStatus.REQUEST_URI_TOO_LONG,
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field from the parser.

        A name with an underscore could pass for another name in WSGI's variables: such
        a field is dropped, as in nginx.
        """
        limits = self._limits
        self._fields += 1
        if b"_" not in name:
            self.headers.append((name.lower(), value.rstrip(b" \t")))
        if limits.fields and self._fields > limits.fields:
            raise Malformed(
                f"limit request headers fields: more than {limits.fields}",
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            )
        if limits.field_bytes and len(name) + len(value) > limits.field_bytes:
            raise Malformed(
                f"limit request headers fields size: more than {limits.field_bytes} "
                "bytes",
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            )

    def on_headers_complete(self) -> None:
        """Read the method, the version and keep-alive from the parser."""
        self.complete = True
        parser = self._parser
        self.method = parser.get_method().decode()
        self.version = parser.get_http_version()
        self.keep_alive = parser.should_keep_alive()

    def _parse(self, piece: bytes) -> None:
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            # A server may ignore the offer; `_check` refuses CONNECT.
            pass
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            raise Malformed(f"malformed HTTP request: {error}") from None

    def _check(self) -> None:
        """Check the head, and read the fields that frame the body."""
        if self.version not in ("1.1", "1.0"):
            raise Malformed(f"HTTP/{self.version} is not spoken here, HTTP/1.1 is")
        if self.method == "CONNECT":
            raise Malformed("this server is no proxy", HTTPStatus.NOT_IMPLEMENTED)
        if not target.is_request_line(self._line):
            raise Malformed(
                "malformed HTTP request: expected METHOD TARGET HTTP/1.1 and one space "
                "between two of them"
            )
        for name, value in self.headers:
            if name == b"content-length":
                self._take_length(value)
            elif name == b"transfer-encoding":
                self._take_coding(value)
            elif name == b"expect":
                self._take_expectation(value)
        self._check_host()
        self._split_target()
        # It refers to this object.
        del self._parser

    def _split_target(self) -> None:
        raw_path, self.query, authority = target.split(self.target)
        if not raw_path.startswith(b"/") and raw_path != b"*":
            raise Malformed("malformed HTTP request: its target is no path or URL")
        if authority is not None:
            self.headers = target.with_host(self.headers, authority)
        path = unquote_to_bytes(raw_path) if b"%" in raw_path else raw_path
        self.path, self.raw_path = path.decode(errors="surrogateescape"), raw_path

    def _check_host(self) -> None:
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1:
            raise Malformed("malformed HTTP request: more than one Host")
        if not hosts and self.version == "1.1":
            raise Malformed("malformed HTTP request: HTTP/1.1 without Host")
        if hosts and not target.is_host(hosts[0]):
            shown = hosts[0].decode("latin-1")
            raise Malformed(
                f"malformed HTTP request: Host {shown!r} is not a name or an address"
            )

    def _take_length(self, value: bytes) -> None:
        if not value.isdigit() or len(value) > _MAX_LENGTH_DIGITS:
            raise Malformed("malformed HTTP request: Content-Length is no number")
        self.content_length = int(value)

    def _take_coding(self, value: bytes) -> None:
        if self.version == "1.0":
            raise Malformed("HTTP/1.0 has no Transfer-Encoding")
        if value.lower() != b"chunked":
            raise Malformed(
                "Transfer-Encoding: only chunked is understood",
                HTTPStatus.NOT_IMPLEMENTED,
            )
        self.content_length = None

    def _take_expectation(self, value: bytes) -> None:
        if value.lower() != b"100-continue":
            raise Malformed(
                "Expect: only 100-continue is understood",
                HTTPStatus.EXPECTATION_FAILED,
            )
        self.expects_continue = self.version == "1.1"
