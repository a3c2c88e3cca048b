"""The request line, the target and Host, checked where httptools accepts too much."""

import re

_REQUEST_LINE = re.compile(rb'[!-~]+ [!"$-~]+ HTTP/\d\.\d\r\n')
_EMPTY_LINES = re.compile(rb"(?:\r\n)*")
# A name or an address, and a port; of RFC 3986 without the marks that no name has.
_HOST = rb"(?:[\w.~%-]+|\[[\w.~%:-]+\])(?::\d*)?"
_EMPTY_OR_HOST = re.compile(b"(?:" + _HOST + b")?")
# Absolute form: scheme, authority and path.
_ABSOLUTE = re.compile(b"https?://(" + _HOST + b")(/[^?]*|)", re.IGNORECASE)


def empty_lines(start: bytes) -> int:
    """Return the number of bytes of the empty lines at the start of a head."""
    match = _EMPTY_LINES.match(start)
    return match.end() if match else 0


def is_request_line(line: bytes) -> bool:
    """Return whether a line has three words, one space between two, and HTTP's end.

    httptools takes more spaces, a fragment, a bare CR or LF in front, and RTSP.
    """
    return _REQUEST_LINE.fullmatch(line) is not None


def split(target: bytes) -> tuple[bytes, bytes, bytes | None]:
    """Return a target's path, its query, and its authority if it has one.

    What is neither a path nor a URL of HTTP is returned as the path.
    """
    path, _, query = target.partition(b"?")
    absolute = _ABSOLUTE.fullmatch(path)
    if absolute is None:
        return path, query, None
    return absolute[2] or b"/", query, absolute[1]


def is_host(value: bytes) -> bool:
    """Return whether a value of Host is valid; without an authority it is empty."""
    return _EMPTY_OR_HOST.fullmatch(value) is not None


def with_host(
    headers: list[tuple[bytes, bytes]], authority: bytes
) -> list[tuple[bytes, bytes]]:
    """Return the headers with the target's authority as Host (RFC 9112, 3.2.2)."""
    return [(name, authority if name == b"host" else value) for name, value in headers]
