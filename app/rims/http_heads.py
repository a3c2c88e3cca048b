"""Heads of HTTP/1.1 requests: parsed by httptools, checked, and kept for the next ones.

httptools (llhttp) refuses bare LF, obs-fold, both lengths, unequal or repeated lengths
and control characters by itself. It has no limit on sizes, takes HTTP/0.9 and 2.0,
codings other than chunked, and in a request line more spaces, a fragment, a bare CR or
LF in front and RTSP: these are refused here.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

import httptools

from app.call import Head

# Limit on a whole head: the request line and all fields.
MAX_HEAD_BYTES = 64 << 10
END = b"\r\n\r\n"
# Bytes that may begin an END.
OVERLAP = len(END) - 1
# Leading zeros included. httptools bounds the number, but int() its digits.
_MAX_LENGTH_DIGITS = 100
# Characters of a client's text that an error repeats.
_MAX_SHOWN = 200

# Limits of the cache: bytes of a head, and number of heads.
_MAX_CACHED_HEAD_BYTES = 1 << 10
_MAX_CACHED_HEADS = 1 << 10
# Fields whose values differ from request to request, and change the meaning of no other
# field. Another spelling of such a field is part of what has to be equal.
_VARYING_FIELD = re.compile(
    rb"\r\n(X-Request-Id|Content-Length): ([!-~]{1,128})(?=\r\n)", re.IGNORECASE
)
# Name and value of the longest field that the pattern finds.
_LONGEST_VARYING_FIELD_BYTES = 142
# httptools takes any number of so many digits.
_MAX_VARYING_LENGTH_DIGITS = 15

_REQUEST_LINE = re.compile(rb'[!-~]+ [!"$-~]+ HTTP/\d\.\d\r\n')
_EMPTY_LINES = re.compile(rb"(?:\r\n)*")
# A name or an address, and a port; of RFC 3986 without the marks that no name has.
_HOST = rb"(?:[\w.~%-]+|\[[\w.~%:-]+\])(?::\d*)?"
_EMPTY_OR_HOST = re.compile(b"(?:" + _HOST + b")?")
# Absolute form: scheme, authority and path.
_ABSOLUTE_FORM = re.compile(b"https?://(" + _HOST + b")(/[^?]*|)", re.IGNORECASE)


class Malformed(Exception):
    """A request that HTTP/1.1 does not allow, or that a limit refuses.

    `status` is the HTTP status of the answer, after which the connection closes.
    """

    def __init__(self, text: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        """Store the text, shortened, and the status."""
        super().__init__(text[:_MAX_SHOWN])
        self.status = status.value


class HeadRules(NamedTuple):
    """Gunicorn's settings for heads.

    limit_request_line in bytes, limit_request_fields, limit_request_field_size in
    bytes; 0 is no limit, as there. `secure_values` are secure_scheme_headers: names in
    lower case, and the values that say that a proxy's client used TLS.
    """

    line_bytes: int = 0
    fields: int = 0
    field_bytes: int = 0
    secure_values: Mapping[bytes, bytes] = {}


class WireHead(Head):
    """A head of HTTP/1.x, and what it says of its body and its connection.

    `target` is as it was sent, `content_length` None for a chunked body.
    `forwarded_scheme` is what a header of secure_scheme_headers says, "" without one;
    only a trusted proxy's counts.
    """

    __slots__ = (
        "content_length",
        "expects_continue",
        "forwarded_scheme",
        "keep_alive",
        "target",
    )

    def __init__(self, parser: "HeadParser") -> None:
        """Take what the parser has read; all of it, unless the head is malformed."""
        headers: dict[str, str] = {}
        for name_bytes, value_bytes in parser.fields:
            name = name_bytes.decode("latin-1")
            value = value_bytes.decode("latin-1")
            headers[name] = f"{headers[name]},{value}" if name in headers else value
        if parser.authority is not None and "host" in headers:
            # RFC 9112, 3.2.2.
            headers["host"] = parser.authority.decode("latin-1")
        raw_path = parser.raw_path
        path = unquote_to_bytes(raw_path) if b"%" in raw_path else raw_path
        super().__init__(
            parser.method,
            path.decode(errors="surrogateescape"),
            parser.query.decode("latin-1"),
            headers,
            raw_path.decode("latin-1"),
            parser.version,
        )
        self.target = parser.target.decode("latin-1")
        self.content_length = parser.content_length
        self.keep_alive = parser.keep_alive
        self.expects_continue = parser.expects_continue
        self.forwarded_scheme = parser.forwarded_scheme()

    def with_varying_fields(
        self, headers: Mapping[str, str], content_length: int | None
    ) -> "WireHead":
        """Return the same head with other values of varying fields."""
        head: WireHead = object.__new__(WireHead)
        head.asks = self.asks
        head.content_length = content_length
        head.expects_continue = self.expects_continue
        head.forwarded_scheme = self.forwarded_scheme
        head.headers = headers
        head.keep_alive = self.keep_alive
        head.method = self.method
        head.parameters = self.parameters
        head.path = self.path
        head.query = self.query
        head.raw_path = self.raw_path
        head.request_id = self.request_id
        head.target = self.target
        head.version = self.version
        return head


class HeadParser:
    """Reads one head, in pieces of any size; `head` is None until it is complete.

    `fields` are (name in lower case, value), without those of names with underscores.
    """

    def __init__(self, rules: HeadRules) -> None:
        """Start httptools."""
        self._rules = rules
        self._parser = httptools.HttpRequestParser(self)
        self._size = self._field_count = 0
        self._line = self._tail = b""
        self._has_ended = False
        self.head: WireHead | None = None
        self.fields: list[tuple[bytes, bytes]] = []
        self.target = self.raw_path = self.query = b""
        self.authority: bytes | None = None
        self.method = self.version = ""
        self.content_length: int | None = 0
        self.keep_alive = True
        self.expects_continue = False

    def feed(self, data: bytes) -> bytes:
        """Parse up to the end of the head; return the bytes behind it.

        Raises:
            Malformed: the head is refused.
        """
        if not self._tail and (self._line or data.startswith(b"\r")):
            data = self._skip_empty_lines(data)
        end = (self._tail + data).find(END)
        stop = len(data) if end < 0 else end + len(END) - len(self._tail)
        piece, data = data[:stop], data[stop:]
        self._tail = (self._tail + piece)[-OVERLAP:]
        self._size += len(piece)
        if not self._line.endswith(b"\n"):
            self._line += piece[: piece.find(b"\n") + 1 or None]
        self._parse(piece)
        if self._size > MAX_HEAD_BYTES:
            raise Malformed(
                f"the request's head is larger than {MAX_HEAD_BYTES} bytes",
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            )
        if self._has_ended:
            self._check()
            self.head = WireHead(self)
            # Avoid a reference cycle: it refers to this object.
            del self._parser
        elif data:
            raise Malformed("malformed HTTP request: it begins with a bare CR or LF")
        return data

    def has_started(self) -> bool:
        """Return whether anything but empty lines has arrived."""
        return bool(self._tail)

    def forwarded_scheme(self) -> str:
        """Return the scheme that a proxy's header names, "" without such a header."""
        secure_values = self._rules.secure_values
        for name, value in self.fields:
            if name in secure_values:
                return "https" if value == secure_values[name] else "http"
        return ""

    # Called by httptools.

    def on_url(self, part: bytes) -> None:
        """Take a part of the request's target."""
        self.target += part
        limit = self._rules.line_bytes
        if limit and len(self.target) > limit:
            raise Malformed(
                f"Request Line is too large: more than {limit} bytes",
                HTTPStatus.REQUEST_URI_TOO_LONG,
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field.

        A name with an underscore could pass for another name in WSGI's variables: such
        a field is dropped, as in nginx.
        """
        rules = self._rules
        self._field_count += 1
        if b"_" not in name:
            self.fields.append((name.lower(), value.rstrip(b" \t")))
        if rules.fields and self._field_count > rules.fields:
            raise Malformed(
                f"limit request headers fields: more than {rules.fields}",
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            )
        if rules.field_bytes and len(name) + len(value) > rules.field_bytes:
            raise Malformed(
                f"limit request headers fields size: more than {rules.field_bytes} "
                "bytes",
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            )

    def on_headers_complete(self) -> None:
        """Read the method, the version and keep-alive."""
        self._has_ended = True
        self.method = self._parser.get_method().decode()
        self.version = self._parser.get_http_version()
        self.keep_alive = self._parser.should_keep_alive()

    # Checks.

    def _skip_empty_lines(self, data: bytes) -> bytes:
        """Return the data behind empty lines; keep a CR that may begin one."""
        data = self._line + data
        match = _EMPTY_LINES.match(data)
        size = match.end() if match else 0
        self._size += size
        self._line = data[size:] if data[size:] == b"\r" else b""
        return data[size + len(self._line) :]

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
        """Check a whole head, and read the fields that frame the body."""
        if self.version not in ("1.1", "1.0"):
            raise Malformed(f"HTTP/{self.version} is not spoken here, HTTP/1.1 is")
        if self.method == "CONNECT":
            raise Malformed("this server is no proxy", HTTPStatus.NOT_IMPLEMENTED)
        if not _REQUEST_LINE.fullmatch(self._line):
            raise Malformed(
                "malformed HTTP request: expected METHOD TARGET HTTP/1.1 and one space "
                "between two of them"
            )
        hosts = []
        for name, value in self.fields:
            if name == b"host":
                hosts.append(value)
            elif name == b"content-length":
                self._take_length(value)
            elif name == b"transfer-encoding":
                self._take_coding(value)
            elif name == b"expect":
                self._take_expectation(value)
        self._check_hosts(hosts)
        self._split_target()

    def _check_hosts(self, hosts: list[bytes]) -> None:
        if len(hosts) > 1:
            raise Malformed("malformed HTTP request: more than one Host")
        if not hosts and self.version == "1.1":
            raise Malformed("malformed HTTP request: HTTP/1.1 without Host")
        if hosts and not _EMPTY_OR_HOST.fullmatch(hosts[0]):
            shown = hosts[0].decode("latin-1")
            raise Malformed(
                f"malformed HTTP request: Host {shown!r} is not a name or an address"
            )

    def _split_target(self) -> None:
        self.raw_path, _, self.query = self.target.partition(b"?")
        absolute = _ABSOLUTE_FORM.fullmatch(self.raw_path)
        if absolute is not None:
            self.authority = absolute[1]
            self.raw_path = absolute[2] or b"/"
        if not self.raw_path.startswith(b"/") and self.raw_path != b"*":
            raise Malformed("malformed HTTP request: its target is no path or URL")

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


class HeadCache:
    """Parsed heads, as most clients repeat theirs, but for an id and a length.

    A head is found by its bytes (`by_bytes`), or by those around the values of its
    varying fields: it has these fields in the same places and spelling, each once, and
    the values are of characters that the parser treats alike. So it is what the parser
    would make of it.
    """

    def __init__(self, rules: HeadRules) -> None:
        """Store the rules that the heads have to keep."""
        self.rules = rules
        self.by_bytes: dict[bytes, WireHead] = {}
        # Heads and the names of their varying fields, by the bytes around the values.
        self._alike: dict[tuple[bytes, ...], tuple[WireHead, list[str]]] = {}
        # A longer value than that of the parsed head might exceed a lower limit.
        limit = rules.field_bytes
        self._finds_alike = not 0 < limit < _LONGEST_VARYING_FIELD_BYTES

    def find_alike(self, sent: bytes) -> WireHead | None:
        """Return a head if one that differs in its varying fields is kept."""
        if len(sent) > _MAX_CACHED_HEAD_BYTES:
            return None
        parts = _VARYING_FIELD.split(sent)
        values = parts[2::3]
        del parts[2::3]
        kept = self._alike.get(tuple(parts))
        if kept is None:
            return None
        head, names = kept
        headers = {**head.headers}
        for name, value in zip(names, values, strict=True):
            headers[name] = value.decode("latin-1")
        content_length = head.content_length
        if "content-length" in names:
            digits = headers["content-length"]
            if not digits.isdecimal() or len(digits) > _MAX_VARYING_LENGTH_DIGITS:
                return None
            content_length = int(digits)
        alike = head.with_varying_fields(headers, content_length)
        if "x-request-id" in names:
            alike.request_id = headers["x-request-id"]
        return alike

    def keep(self, sent: bytes, head: WireHead) -> None:
        """Keep a head that was parsed of these bytes, in place of the oldest one."""
        if len(sent) > _MAX_CACHED_HEAD_BYTES:
            return
        _keep_newest(self.by_bytes, sent, head)
        parts = _VARYING_FIELD.split(sent)
        values = [value.decode("latin-1") for value in parts[2::3]]
        del parts[2::3]
        names = [name.decode("latin-1").lower() for name in parts[1::2]]
        # Not so if a field is given once more, in this spelling or another.
        are_read_alike = values == [head.headers.get(name) for name in names]
        if values and are_read_alike and self._finds_alike:
            _keep_newest(self._alike, tuple(parts), (head, names))


def _keep_newest(kept: dict, key: object, value: object) -> None:  # type: ignore[type-arg]
    if len(kept) >= _MAX_CACHED_HEADS:
        del kept[next(iter(kept))]
    kept[key] = value
