"""Heads of HTTP/1.1 requests: parsed by httptools, checked, and kept for the next ones.

httptools (llhttp) refuses bare LF, obs-fold, both lengths, unequal or repeated lengths
and control characters by itself. It has no limit on sizes, takes HTTP/0.9 and 2.0,
codings other than chunked, and in a request line more spaces, a fragment, a bare CR or
LF in front and RTSP: these are refused here.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import httptools

from app.call import Head

# Limit on a whole head: the request line and all fields.
MAX_HEAD_BYTES = 64 << 10
END = b"\r\n\r\n"
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
# The request line so far, for what will never be one, such as TLS.
_BEGINNING = re.compile(rb"[ -~]*(?:\r\n|\r?\Z)")
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
    secure_values: Mapping[str, str] = {}


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
        raw_path = parser.raw_path
        path = unquote_to_bytes(raw_path) if b"%" in raw_path else raw_path
        super().__init__(
            parser.method,
            path.decode(errors="surrogateescape"),
            parser.query.decode("latin-1"),
            parser.headers,
            raw_path.decode("latin-1"),
            parser.version,
        )
        self.target = parser.target.decode("latin-1")
        self.content_length = parser.content_length
        self.keep_alive = parser.keep_alive
        self.expects_continue = parser.expects_continue
        self.forwarded_scheme = parser.forwarded_scheme

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
    """Reads one head; after an error it has what stood before that.

    `headers` are without those whose names have underscores.
    """

    def __init__(self, rules: HeadRules) -> None:
        """Store the rules."""
        self._rules = rules
        self._field_count = 0
        self._is_complete = False
        self.headers: dict[str, str] = {}
        self.target = self.raw_path = self.query = b""
        self.method = self.version = ""
        self.content_length: int | None = 0
        self.keep_alive = True
        self.expects_continue = False
        self.forwarded_scheme = ""

    def parse(self, sent: bytes) -> None:
        """Read a head, from the request line to the empty line.

        Raises:
            Malformed: the head is refused, or has no end.
        """
        parser = self._parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(sent)
        except httptools.HttpParserUpgrade:
            # A server may ignore the offer; `_check` refuses CONNECT.
            pass
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            raise Malformed(f"malformed HTTP request: {error}") from None
        finally:
            # Avoid a reference cycle: it refers to this object.
            del self._parser
        if len(sent) > MAX_HEAD_BYTES:
            raise Malformed(
                f"the request's head is larger than {MAX_HEAD_BYTES} bytes",
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            )
        if not self._is_complete:
            raise Malformed("malformed HTTP request: it begins with a bare CR or LF")
        self._check(sent)

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
        rules, headers = self._rules, self.headers
        self._field_count += 1
        if b"_" not in name:
            key = name.lower().decode("latin-1")
            text = value.rstrip(b" \t").decode("latin-1")
            headers[key] = f"{headers[key]},{text}" if key in headers else text
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
        self._is_complete = True
        self.method = self._parser.get_method().decode()
        self.version = self._parser.get_http_version()
        self.keep_alive = self._parser.should_keep_alive()

    # Checks.

    def _check(self, sent: bytes) -> None:
        """Check a whole head; a field that is given twice has a value with a comma."""
        if self.version not in ("1.1", "1.0"):
            raise Malformed(f"HTTP/{self.version} is not spoken here, HTTP/1.1 is")
        if self.method == "CONNECT":
            raise Malformed("this server is no proxy", HTTPStatus.NOT_IMPLEMENTED)
        if not _REQUEST_LINE.match(sent):
            raise Malformed(
                "malformed HTTP request: expected METHOD TARGET HTTP/1.1 and one space "
                "between two of them"
            )
        self._check_framing()
        host = self.headers.get("host")
        if host is None and self.version == "1.1":
            raise Malformed("malformed HTTP request: HTTP/1.1 without Host")
        if host is not None and not _EMPTY_OR_HOST.fullmatch(host.encode("latin-1")):
            raise Malformed(
                f"malformed HTTP request: Host {host!r} is not a name or an address"
            )
        self._split_target()
        for name, value in self.headers.items():
            if name in self._rules.secure_values:
                is_secure = value == self._rules.secure_values[name]
                self.forwarded_scheme = "https" if is_secure else "http"
                break

    def _check_framing(self) -> None:
        """Check the fields that say how the body comes."""
        headers = self.headers
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > _MAX_LENGTH_DIGITS:
            raise Malformed("malformed HTTP request: Content-Length is no number")
        self.content_length = int(length)
        if "transfer-encoding" in headers:
            if self.version == "1.0":
                raise Malformed("HTTP/1.0 has no Transfer-Encoding")
            if headers["transfer-encoding"].lower() != "chunked":
                raise Malformed(
                    "Transfer-Encoding: only chunked is understood",
                    HTTPStatus.NOT_IMPLEMENTED,
                )
            self.content_length = None
        if "expect" in headers:
            if headers["expect"].lower() != "100-continue":
                raise Malformed(
                    "Expect: only 100-continue is understood",
                    HTTPStatus.EXPECTATION_FAILED,
                )
            self.expects_continue = self.version == "1.1"

    def _split_target(self) -> None:
        self.raw_path, _, self.query = self.target.partition(b"?")
        absolute = _ABSOLUTE_FORM.fullmatch(self.raw_path)
        if absolute is not None:
            self.raw_path = absolute[2] or b"/"
            if "host" in self.headers:
                # RFC 9112, 3.2.2.
                self.headers["host"] = absolute[1].decode("latin-1")
        if not self.raw_path.startswith(b"/") and self.raw_path != b"*":
            raise Malformed("malformed HTTP request: its target is no path or URL")


class HeadCache:
    """Keeps parsed heads: most clients repeat theirs, but for an id and a length.

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

    def read(self, buffer: bytes) -> tuple[WireHead | None, int]:
        """Return the first head, and the bytes up to its end; None: it has no end yet.

        Raises:
            Malformed: the head is refused, or will be.
        """
        empty_lines = _EMPTY_LINES.match(buffer)
        start = empty_lines.end() if empty_lines else 0
        size = buffer.find(END, start) + len(END)
        if size < len(END):
            if len(buffer) > MAX_HEAD_BYTES:
                HeadParser(self.rules).parse(buffer)
            if not _BEGINNING.match(buffer, start):
                raise Malformed("malformed HTTP request: this is no request line")
            return None, 0
        sent = buffer[start:size]
        head = self.find(sent)
        if head is None:
            parser = HeadParser(self.rules)
            parser.parse(sent)
            head = WireHead(parser)
            self._keep(sent, head)
        return head, size

    def read_malformed(self, buffer: bytes) -> WireHead:
        """Return what can be read of a head that is refused."""
        parser = HeadParser(self.rules)
        with suppress(Malformed):
            parser.parse(buffer)
        return WireHead(parser)

    def find(self, sent: bytes) -> WireHead | None:
        """Return the head of these bytes, if it or one like it was parsed before."""
        head = self.by_bytes.get(sent)
        if head is not None or len(sent) > _MAX_CACHED_HEAD_BYTES:
            return head
        parts, values = _split(sent)
        kept = self._alike.get(parts)
        if kept is None:
            return None
        head, names = kept
        headers = {**head.headers, **dict(zip(names, values, strict=True))}
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

    def _keep(self, sent: bytes, head: WireHead) -> None:
        """Keep a head that was parsed of these bytes, in place of the oldest one."""
        if len(sent) > _MAX_CACHED_HEAD_BYTES:
            return
        _make_room(self.by_bytes)
        self.by_bytes[sent] = head
        parts, values = _split(sent)
        names = [name.decode("latin-1").lower() for name in parts[1::2]]
        # Not so if a field is given once more, in this spelling or another.
        are_read_alike = values == [head.headers.get(name) for name in names]
        if values and are_read_alike and self._finds_alike:
            _make_room(self._alike)
            self._alike[parts] = (head, names)


def _split(sent: bytes) -> tuple[tuple[bytes, ...], list[str]]:
    """Return the bytes around the values of varying fields, and the values."""
    parts = _VARYING_FIELD.split(sent)
    values = [value.decode("latin-1") for value in parts[2::3]]
    del parts[2::3]
    return tuple(parts), values


def _make_room(kept: dict[Any, Any]) -> None:
    if len(kept) >= _MAX_CACHED_HEADS:
        del kept[next(iter(kept))]
