"""Heads of HTTP/1.1 requests: parsed by httptools, checked, and kept for the next ones.

httptools (llhttp) refuses bare LF, obs-fold, both lengths, repeated lengths, lengths
that are no number, and control characters by itself. It has no limit on sizes, takes
HTTP/0.9 and 2.0, codings other than chunked, and in a request line more spaces, a
fragment, a bare CR or LF in front and RTSP: these are refused here.
"""

import re
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote_to_bytes

import httptools

from app.call import Head, valid_id, with_one_slash
from app.rims.fields import add_field

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
# field. Another spelling of such a field is part of what has to be equal. httptools
# takes any length of so many digits.
_VARYING_FIELD = re.compile(
    rb"\r\n(X-Request-Id|Content-Length(?=: \d{1,15}\r)): ([!-~]{1,128})(?=\r\n)",
    re.IGNORECASE,
)
# Name and value of the longest field that the pattern finds.
_LONGEST_VARYING_FIELD_BYTES = 142

_REQUEST_LINE = re.compile(rb'[!-~]+ [!"$-~]+ HTTP/\d\.\d\r\n')
_EMPTY_LINES = re.compile(rb"(?:\r\n)*")
# The request line so far, for what will never be one, such as TLS.
_BEGINNING = re.compile(rb"[ -~]*(?:\r\n|\r?\Z)")
# A name or an address, and a port; of RFC 3986 without the marks that no name has.
_HOST = r"(?:[\w.~%-]+|\[[\w.~%:-]+\])(?::\d*)?"
_EMPTY_OR_HOST = re.compile(f"(?:{_HOST})?", re.ASCII)
# Absolute form: scheme, authority and path.
_ABSOLUTE_FORM = re.compile(f"https?://({_HOST})(/[^?]*|)", re.ASCII | re.IGNORECASE)


class Malformed(Exception):
    """A request that HTTP/1.1 does not allow, or that a limit refuses.

    `status` is the HTTP status of the answer, after which the connection closes.
    """

    def __init__(self, text: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        """Store the text, shortened, and the status."""
        super().__init__(text[:_MAX_SHOWN])
        self.status = status.value


class WireHead(Head):
    """A head of HTTP/1.x, and what it says of its body and its connection.

    `target` is as it was sent, `content_length` None for a chunked body.
    `forwarded_scheme` is what a header of secure_scheme_headers says, "" without one;
    only a trusted proxy's counts. A malformed head has what stood before the error.
    """

    content_length: int | None = 0
    expects_continue = False
    forwarded_scheme = ""
    keep_alive = True

    def __init__(self) -> None:
        """Start without any part; `parse` sets them."""
        super().__init__("", "", "", {}, version="")
        self.headers: dict[str, str] = {}
        self.target = ""
        self._fields: list[tuple[bytes, bytes]] = []

    def parse(self, sent: bytes, cfg: Any) -> None:
        """Read a head, from the request line to the empty line.

        The limits are Gunicorn's settings; 0 is no limit, as there.

        Raises:
            Malformed: the head is refused, or has no end.
        """
        parser = self._parser = httptools.HttpRequestParser(self)
        try:
            # A longer head is refused below.
            parser.feed_data(sent[: MAX_HEAD_BYTES + 1])
        except httptools.HttpParserUpgrade:
            # A server may ignore the offer; `_check` refuses CONNECT.
            pass
        except httptools.HttpParserError as error:
            raise Malformed(f"malformed HTTP request: {error}") from None
        finally:
            # Avoid a reference cycle: it refers to this object.
            del self._parser
            line_bytes, fields = cfg.limit_request_line, cfg.limit_request_fields
            # Joining very many values takes quadratic time.
            for name, value in self._fields[: fields or None]:
                add_field(self.headers, name, value.rstrip(b" \t"))
        field_bytes = cfg.limit_request_field_size
        if 0 < line_bytes < len(self.target):
            raise Malformed(
                f"Request Line is too large: more than {line_bytes} bytes",
                HTTPStatus.REQUEST_URI_TOO_LONG,
            )
        if 0 < fields < len(self._fields):
            raise _too_large(f"limit request headers fields: more than {fields}")
        sizes = [len(name) + len(value) for name, value in self._fields]
        if 0 < field_bytes < max(sizes, default=0):
            raise _too_large(
                f"limit request headers fields size: more than {field_bytes} bytes"
            )
        if len(sent) > MAX_HEAD_BYTES:
            raise _too_large(
                f"the request's head is larger than {MAX_HEAD_BYTES} bytes"
            )
        if not self.version:
            raise Malformed("malformed HTTP request: it begins with a bare CR or LF")
        self._check(sent)
        self._split_target()
        values = cfg.secure_scheme_headers.items()
        secure_values = {header.lower(): value for header, value in values}
        for header, given in self.headers.items():
            if header in secure_values:
                is_secure = given == secure_values[header]
                self.forwarded_scheme = "https" if is_secure else "http"
                break
        self.request_id = valid_id(self.headers.get("x-request-id"))

    # Called by httptools.

    def on_url(self, part: bytes) -> None:
        """Take a part of the request's target."""
        self.target += part.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field."""
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Read the method, the version and keep-alive."""
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
        if host is not None and not _EMPTY_OR_HOST.fullmatch(host):
            raise Malformed(
                f"malformed HTTP request: Host {host!r} is not a name or an address"
            )

    def _check_framing(self) -> None:
        """Check the fields that say how the body comes."""
        headers = self.headers
        length = headers.get("content-length", "0")
        if len(length) > _MAX_LENGTH_DIGITS:
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
        raw_path, _, self.query = self.target.partition("?")
        absolute = _ABSOLUTE_FORM.fullmatch(raw_path)
        if absolute is not None:
            raw_path = absolute[2] or "/"
            if "host" in self.headers:
                # RFC 9112, 3.2.2.
                self.headers["host"] = absolute[1]
        if not raw_path.startswith("/") and raw_path != "*":
            raise Malformed("malformed HTTP request: its target is no path or URL")
        self.raw_path = raw_path
        path = unquote_to_bytes(raw_path.encode("latin-1"))
        self.path = with_one_slash(path.decode(errors="surrogateescape"))


class HeadCache:
    """Keeps parsed heads: most clients repeat theirs, but for an id and a length.

    A head is found by its bytes (`by_bytes`), or by those around the values of its
    varying fields: it has these fields in the same places and spelling, each once, and
    the values are of characters that the parser treats alike. So it is what the parser
    would make of it.
    """

    def __init__(self, cfg: Any) -> None:
        """Store Gunicorn's settings, which have the limits."""
        self._cfg = cfg
        self.by_bytes: dict[bytes, WireHead] = {}
        # Heads and the names of their varying fields, by the bytes around the values.
        self._alike: dict[tuple[bytes, ...], tuple[WireHead, list[str]]] = {}

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
                WireHead().parse(buffer, self._cfg)
            if not _BEGINNING.match(buffer, start):
                raise Malformed("malformed HTTP request: this is no request line")
            return None, 0
        sent = buffer[start:size]
        head = self.by_bytes.get(sent) or self.find_alike(sent)
        if head is None:
            head = WireHead()
            head.parse(sent, self._cfg)
            self._keep(sent, head)
        return head, size

    def read_malformed(self, buffer: bytes) -> WireHead:
        """Return what can be read of a head that is refused."""
        head = WireHead()
        with suppress(Malformed):
            head.parse(buffer, self._cfg)
        return head

    def find_alike(self, sent: bytes) -> WireHead | None:
        """Return the head of these bytes, if one like it was parsed before."""
        if len(sent) > _MAX_CACHED_HEAD_BYTES:
            return None
        parts, values = _split(sent)
        kept = self._alike.get(parts)
        if kept is None:
            return None
        head, names = kept
        headers = {**head.headers, **dict(zip(names, values, strict=True))}
        alike: WireHead = object.__new__(WireHead)
        alike.__dict__.update(head.__dict__, headers=headers)
        if "content-length" in names:
            alike.content_length = int(headers["content-length"])
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
        # A longer value than that of the parsed head might exceed a lower limit.
        limit = self._cfg.limit_request_field_size
        has_room = not 0 < limit < _LONGEST_VARYING_FIELD_BYTES
        if values and are_read_alike and has_room:
            _make_room(self._alike)
            self._alike[parts] = (head, names)


def _too_large(text: str) -> Malformed:
    return Malformed(text, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)


def _split(sent: bytes) -> tuple[tuple[bytes, ...], list[str]]:
    """Return the bytes around the values of varying fields, and the values."""
    parts = _VARYING_FIELD.split(sent)
    values = [value.decode("latin-1") for value in parts[2::3]]
    del parts[2::3]
    return tuple(parts), values


def _make_room(kept: dict[Any, Any]) -> None:
    if len(kept) >= _MAX_CACHED_HEADS:
        del kept[next(iter(kept))]
